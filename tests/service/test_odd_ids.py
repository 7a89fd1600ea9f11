"""Ids that are odd, and paths that only look like routes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

IDS = ("end", "end\n", "n\nl", " wsp ", "wsp", "a/b/", "\ttab")


def test_every_id_is_reached_and_no_other(
    build_index: Callable[[list[dict[str, Any]]], Path],
    run_server: Callable[..., AbstractContextManager[Any]],
) -> None:
    root = build_index([{"_id": name, "text": f"bees number {at}"} for at, name in enumerate(IDS)])
    with run_server("--index-root", root) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        for at, name in enumerate(IDS):
            document = client.get(f"/documents/{quote(name, safe='')}").json()
            assert (document["id"], document["fields"]["text"]) == (name, f"bees number {at}")
        for name in ("end\n\n", "tab", "n", "l"):
            assert client.get(f"/documents/{quote(name, safe='')}").json()["code"] == "document_not_found"


@pytest.mark.parametrize("path", ["/healthz%0A", "/info%0A", "/search%0A", "/static/app.js%0A", "/%0A"])
def test_a_line_feed_behind_a_path_makes_it_another_path(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 404
