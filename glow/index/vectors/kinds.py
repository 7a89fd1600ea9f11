"""Which kinds of dense index there are, and which one suits a size.

`flat` compares with every vector, exactly; `hnsw` walks a graph; `ivf-flat` and `ivf-pq` look into the nearest of many
lists. `ivf-pq` does so over codes, and scores what these find again, by vectors in 8 bits that are read from the mapped file.
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
"""Codes of so many vectors lie side by side; FAISS fills up the last block of each list."""


def choose_kind(
    count: int, dimensions: int, memory_bytes: int = DEFAULT_MEMORY_BYTES, device: str = "cpu"
) -> IndexKind:
    """The kind that suits a size: exact while that is fast, approximate while it fits, compressed beyond.

    Args:
        count: vectors.
        dimensions: D.
        memory_bytes: what the index may take in memory.
        device: where it is built; `cuda` can build neither a graph nor codes, so whole vectors in lists take their place.
    """
    if count <= FLAT_MAX_VECTORS:
        return "flat"
    if device != "cpu":
        return "ivf-flat"
    return "ivf-pq" if index_bytes("hnsw", count, dimensions) > memory_bytes else "hnsw"


def index_bytes(kind: IndexKind, count: int, dimensions: int) -> int:
    """About how many bytes an index takes on disk, and in memory while it is searched; of `ivf-pq`, D a vector are rarely read.

    Args:
        kind: one of `KINDS`.
        count: vectors.
        dimensions: D.
    """
    whole = 4 * dimensions
    lists = list_count(count)
    if kind == "flat":
        return count * whole
    if kind == "hnsw":
        return count * (whole + 8 * HNSW_LINKS + 20)  # 2M links of 4 bytes, upper levels and offsets
    if kind == "ivf-flat":
        return lists * whole + count * (8 + whole)
    codes = -(-code_count(dimensions) // 2)
    return lists * (whole + codes * PQ_BLOCK_VECTORS // 2) + count * (8 + codes + dimensions)


def require_buildable(kind: IndexKind, count: int) -> None:
    """Refuses a kind that so few vectors cannot train.

    Raises:
        ConfigError: if unknown kind, or too few vectors; the message has both numbers.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown index kind {kind!r}; known: auto, {', '.join(KINDS)}")
    least = {"ivf-flat": 1, "ivf-pq": 1 << PQ_BITS}.get(kind, 0)
    if count < least:
        raise ConfigError(
            f"an {kind} index needs at least {least} vectors to train, found {count}; choose flat"
        )


def code_count(dimensions: int) -> int:
    """Codes of 4 bits of a compressed vector: the most that divide D into parts of at least 2 dimensions."""
    most = max(dimensions // PQ_DIMENSIONS_PER_CODE, 1)
    return next(codes for codes in range(most, 0, -1) if dimensions % codes == 0)
