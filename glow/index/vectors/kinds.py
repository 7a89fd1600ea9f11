"""The kinds of dense index, and the choice of one by size.

`flat` compares with every vector, exactly; `hnsw` walks a graph; `ivf-pq` searches the nearest of many inverted lists: it
compares 4-bit codes, and scores the best again with 8-bit vectors from the mapped file.
"""

from glow.errors import ConfigError
from glow.index.vector_search import KINDS, IndexKind, list_count

__all__ = [
    "KINDS", "IndexKind", "choose_kind", "code_count", "index_bytes", "list_count", "require_buildable",
]  # fmt: skip

# docs/results/serving.md has the measurements behind these figures.
FLAT_MAX_VECTORS = 4_000
DEFAULT_MEMORY_BYTES = 4 << 30
HNSW_LINKS = 32
PQ_BITS = 4
PQ_DIMENSIONS_PER_CODE = 2
PQ_BLOCK_VECTORS = 32
"""Number of codes in a block; FAISS fills up the last block of each list."""


def choose_kind(count: int, dimensions: int, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> IndexKind:
    """The kind for a size: exact while that is fast, approximate while it fits into memory, compressed beyond.

    Args:
        count: number of vectors.
        dimensions: D.
        memory_bytes: memory limit of the index.
    """
    if count <= FLAT_MAX_VECTORS:
        return "flat"
    return "ivf-pq" if index_bytes("hnsw", count, dimensions) > memory_bytes else "hnsw"


def index_bytes(kind: IndexKind, count: int, dimensions: int) -> int:
    """Approximate size of an index on disk, and in memory while searched; for `ivf-pq`, D bytes per vector are rarely read.

    Args:
        kind: one of `KINDS`.
        count: number of vectors.
        dimensions: D.
    """
    whole = 4 * dimensions
    lists = list_count(count)
    if kind == "flat":
        return count * whole
    if kind == "hnsw":
        return count * (whole + 8 * HNSW_LINKS + 20)  # 2M links of 4 bytes, upper levels and offsets
    codes = -(-code_count(dimensions) // 2)
    return lists * (whole + codes * PQ_BLOCK_VECTORS // 2) + count * (8 + codes + dimensions)


def require_buildable(kind: IndexKind, count: int) -> None:
    """Refuses a kind if there are too few vectors to train it.

    Raises:
        ConfigError: if the kind is unknown, or there are too few vectors; the message has both numbers.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown index kind {kind!r}; known: auto, {', '.join(KINDS)}")
    least = 1 << PQ_BITS if kind == "ivf-pq" else 0
    if count < least:
        raise ConfigError(
            f"an {kind} index needs at least {least} vectors to train, found {count}; choose flat"
        )


def code_count(dimensions: int) -> int:
    """Number of 4-bit codes of a compressed vector: the most that divide D into parts of at least 2 dimensions."""
    most = max(dimensions // PQ_DIMENSIONS_PER_CODE, 1)
    return next(codes for codes in range(most, 0, -1) if dimensions % codes == 0)
