"""The dense index on a GPU finds what it finds on the CPU, and its file is the CPU's."""

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


@pytest.mark.parametrize(("kind", "least"), [("flat", 0.999), ("ivf-flat", 0.98)])
def test_an_index_built_on_the_gpu_is_served_by_both_devices(
    kind: IndexKind, least: float, vectors: Vectors, queries: Vectors, tmp_path: Path
) -> None:
    built = build_dense(vectors, kind, "cuda")
    built.save(tmp_path / "vectors.faiss")
    on_gpu = DenseIndex.load(tmp_path / "vectors.faiss", "cuda")
    on_cpu = DenseIndex.load(tmp_path / "vectors.faiss")
    assert (on_gpu.device, on_cpu.device, on_gpu.kind, on_cpu.kind) == ("cuda", "cpu", kind, kind)
    expected = on_cpu.search(queries, 10)[1]
    for index in (built, on_gpu):
        rows = index.search(queries, 10)[1]
        assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(rows, expected, strict=True)]) >= least


def test_exact_search_on_the_gpu_equals_brute_force(vectors: Vectors, queries: Vectors) -> None:
    expected = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :10]
    for kind in ("flat", "ivf-flat"):
        rows = build_dense(vectors, kind, "cuda").search(queries, 10, SearchParams(exact=True))[1]
        assert (rows == expected).mean() > 0.99  # the GPU adds in another order


@pytest.mark.parametrize("kind", ["hnsw", "ivf-pq"])
def test_a_graph_and_codes_are_refused(kind: IndexKind, vectors: Vectors) -> None:
    with pytest.raises(DeviceError, match=f"{kind} index cannot run on a GPU"):
        build_dense(vectors, kind, "cuda")
