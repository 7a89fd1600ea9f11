"""What a version of a set says of its shards, `shards.json`, and to which shard a document falls.

INDEX_ROOT/CURRENT, INDEX_ROOT/<version>/     the set: query tower, the one term table, shards.json
INDEX_ROOT/shards/0/ … /N-1/                  an index root for each shard, as any other
"""

from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from glow.options import StrictModel
from glow.search.columns import ValueType
from glow.search.dense import IndexKind
from glow.search.spelling import SPELLING_FOLDER, SpellingTable
from glow.storage import read_header
from glow.text import AnalyzerName

__all__ = [
    "MAX_SHARDS", "SHARDS_FILE", "SHARDS_FOLDER", "ShardField", "ShardRecord", "ShardSet", "is_set", "read_shard_set",
    "set_spelling", "shard_of", "shard_root",
]  # fmt: skip

SHARDS_FILE = "shards.json"
SHARDS_FOLDER = "shards"
MAX_SHARDS = 256
Count = Annotated[int, Field(ge=0, lt=2**62)]


class ShardField(StrictModel):
    """Metadata that can be filtered by: the documents that have it, and the types of their values."""

    documents: Count
    types: list[ValueType]


class ShardRecord(StrictModel):
    """The version of one shard that belongs to the set.

    Attributes:
        version: its name in the shard's own root.
        manifest: the hash of its manifest.
        documents: that it holds.
        kind, dimensions: of its vectors.
        largest: the largest impact of any word; None: it holds no words.
        analyzer: makes the terms of its lexical index.
        fields: metadata by name.
        left_out: field -> why it has no column.
    """

    version: str
    manifest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    documents: Count
    kind: IndexKind
    dimensions: Annotated[int, Field(ge=1, le=65_536)]
    largest: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None
    analyzer: AnalyzerName
    fields: dict[str, ShardField]
    left_out: dict[str, str]


class ShardSet(StrictModel):
    """`shards.json`: shards by their number. They hold documents of one kind, so the first stands for all."""

    format: Literal[1] = 1
    shards: Annotated[list[ShardRecord], Field(min_length=1, max_length=MAX_SHARDS)]

    @property
    def documents(self) -> int:
        """Of all shards."""
        return sum(record.documents for record in self.shards)

    @property
    def largest(self) -> float | None:
        """The largest impact of any word in any shard, by which hybrid search scales words; None: there are no words."""
        return max((each.largest for each in self.shards if each.largest is not None), default=None)

    @property
    def left_out(self) -> dict[str, str]:
        """Fields that have no column in some shard, so in none, and why."""
        return {name: why for record in self.shards for name, why in record.left_out.items()}

    @property
    def fields(self) -> dict[str, ShardField]:
        """Metadata by name, over all shards; dates of one and other texts of another make a field of texts."""
        found: dict[str, list[ShardField]] = {}
        for record in self.shards:
            for name, field in record.fields.items():
                found.setdefault(name, []).append(field)
        return {name: _joined(found[name]) for name in sorted(found.keys() - self.left_out.keys())}


def _joined(fields: list[ShardField]) -> ShardField:
    types = {kind for field in fields for kind in field.types}
    if any("string" in field.types and "date" not in field.types for field in fields):
        types.discard("date")
    return ShardField(documents=sum(field.documents for field in fields), types=sorted(types))


def is_set(folder: Path) -> bool:
    """Whether a version's folder is that of a set."""
    return (folder / SHARDS_FILE).is_file()


def read_shard_set(folder: Path) -> ShardSet:
    """Reads `shards.json` of a version.

    Raises:
        FormatError: if it is missing or damaged.
    """
    return read_header(folder / SHARDS_FILE, ShardSet)


def shard_of(document_id: str, shards: int) -> int:
    """The shard that a document falls to, 0 to `shards` - 1: by a hash of its id, so that a change finds it again."""
    digest = blake2b(document_id.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards


def shard_root(root: Path, shard: int) -> Path:
    """The index root of a shard, below the set's."""
    return root / SHARDS_FOLDER / str(shard)


def set_spelling(folder: Path) -> list[SpellingTable]:
    """The spelling tables of all shards, from the copies in a set's folder; those that were built without have none.

    Raises:
        FormatError: if one is damaged.
    """
    return [SpellingTable.open(path) for path in sorted(folder.glob(f"{SPELLING_FOLDER}-*"))]
