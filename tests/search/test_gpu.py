"""The dense index on a GPU finds what it finds on the CPU."""

from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from glow.errors import DeviceError
from glow.index.vectors import DenseIndex, IndexKind, SearchParams, build_dense

Vectors = NDArray[np.float32]
HAS_GPU = hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason="this faiss sees no GPU")]


def test_a_flat_index_finds_the_same_on_a_gpu(vectors: Vectors, queries: Vectors, tmp_path: Path) -> None:
    build_dense(vectors, "flat").save(tmp_path / "vectors.faiss")
    on_gpu, on_cpu = (DenseIndex.load(tmp_path / "vectors.faiss", device) for device in ("cuda", "cpu"))
    assert (on_gpu.device, on_cpu.device, on_gpu.kind, on_cpu.kind) == ("cuda", "cpu", "flat", "flat")
    rows, expected = (index.search(queries, 10, SearchParams(exact=True))[1] for index in (on_gpu, on_cpu))
    assert (rows == expected).mean() > 0.99  # the GPU adds in another order


@pytest.mark.parametrize("kind", ["hnsw", "ivf-pq"])
def test_a_graph_and_codes_are_refused(kind: IndexKind, vectors: Vectors, tmp_path: Path) -> None:
    build_dense(vectors, kind).save(tmp_path / "vectors.faiss")
    with pytest.raises(DeviceError, match=f"{kind} index cannot run on a GPU"):
        DenseIndex.load(tmp_path / "vectors.faiss", "cuda")
