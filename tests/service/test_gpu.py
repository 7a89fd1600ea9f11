"""A service on a GPU answers as one on the CPU does."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import onnxruntime
import pytest

StartServer = Callable[..., AbstractContextManager[Any]]
HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_CUDA, reason="this onnxruntime has no CUDA provider"),
]


@pytest.mark.parametrize("retriever", ["dense", "hybrid"])
def test_a_service_on_cuda_finds_what_one_on_the_cpu_finds(
    retriever: str, toy_index: Path, http: httpx.Client, start_server: StartServer, tmp_path: Path
) -> None:
    body = {"query": "how do bees find the way home", "retriever": retriever, "timeout_ms": 10_000}
    expected = http.post("/search", json=body).json()["hits"]
    flags = ("--index-root", str(toy_index), "--device", "cuda")
    with start_server(tmp_path, *flags) as server, server.client(60) as client:
        found = client.post("/search", json=body).json()["hits"]
    assert [hit["id"] for hit in found] == [hit["id"] for hit in expected]
    assert [hit["score"] for hit in found] == pytest.approx([hit["score"] for hit in expected], abs=1e-3)
