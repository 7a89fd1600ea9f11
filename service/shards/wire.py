"""What a router asks of a shard and hears from it: JSON that both sides read with these shapes.

Every call names the version that it means, so an answer never mixes two, whatever is published meanwhile.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from glow.errors import FormatError
from glow.options import StrictModel, describe
from glow.records import Document
from glow.search import FoundPassage, ShardCandidates

__all__ = [
    "DOCUMENT_BYTES",
    "OPEN_BYTES",
    "DocumentCall",
    "Found",
    "HighlightWire",
    "OpenCall",
    "RankCall",
    "ShowCall",
    "Shown",
    "document_from_json",
    "document_to_json",
    "found_from_json",
    "found_to_json",
    "has_vectors_from_json",
    "rank_bytes",
    "read_call",
    "show_bytes",
    "shown_from_json",
]  # fmt: skip

C = TypeVar("C", bound=StrictModel)
OPEN_BYTES = 64 << 10
DOCUMENT_BYTES = 16 << 20
_MOST_BYTES = 256 << 20
_CANDIDATE_BYTES = 4 << 10
"""An id of 512 bytes whose every byte is escaped, and numbers."""
_FIELD_BYTES = 64 << 10
_HIT_BYTES = 4 << 20
"""A document is a line of 1,000,000 bytes at most unless a build allows more; its passage and snippets come on top."""


def rank_bytes(candidates: int, fields: int) -> int:
    """Longest response to `rank`: both parts may give so many candidates."""
    return min(OPEN_BYTES + 2 * candidates * (_CANDIDATE_BYTES + fields * _FIELD_BYTES), _MOST_BYTES)


def show_bytes(hits: int) -> int:
    """Longest response to `show`."""
    return min(OPEN_BYTES + hits * _HIT_BYTES, _MOST_BYTES)


class OpenCall(StrictModel):
    """Have a version ready: `manifest` is the hash of its manifest."""

    version: str
    manifest: str


class RankCall(StrictModel):
    """The candidates of one query.

    Attributes:
        version: which to search.
        source: what is searched for; `all` is every document that the filter allows.
        text: the query as it is searched.
        vector: of the query, L2-normalised; None for a search by words.
        retriever: which parts are asked.
        candidates: most of each part.
        ef_search, nprobe, exact: how thoroughly.
        filter: `expression_to_json`; None: all documents.
        fields: names of metadata that are sent with each candidate.
        timeout_ms: how long the router waits.
    """

    version: str
    source: Literal["query", "all"] = "query"
    text: str = ""
    vector: list[float] | None = None
    retriever: Literal["dense", "lexical", "hybrid"] = "dense"
    candidates: int = Field(ge=1)
    ef_search: int | None = None
    nprobe: int | None = None
    exact: bool = False
    filter: list[Any] | None = None
    fields: list[str] = Field(default_factory=list)
    timeout_ms: int = Field(default=2_000, ge=1)


class HighlightWire(StrictModel):
    """Snippets of which fields, how many and how long; and of how many hits the page has on all shards."""

    fields: list[str]
    fragments: int
    fragment_chars: int
    hits: int = 0


class ShowCall(StrictModel):
    """Hits of a page as they are shown: rows in the shard, and the best passage of each (-1: none)."""

    version: str
    rows: list[int]
    passages: list[int]
    text: str
    fields: list[str] | None
    metadata: list[str] | None
    highlight: HighlightWire | None
    timeout_ms: int = Field(default=2_000, ge=1)


class DocumentCall(StrictModel):
    """A document by its id, with its vector where that is wanted."""

    version: str
    id: str
    vector: bool = False
    timeout_ms: int = Field(default=2_000, ge=1)


class Found(StrictModel, arbitrary_types_allowed=True):
    """What `rank` answers.

    Attributes:
        ids: of the candidates.
        candidates: of the shard.
        metadata: of each candidate, as far as it was asked for; empty where nothing was.
        matching: documents that the filter allows.
    """

    ids: list[str]
    candidates: ShardCandidates
    metadata: list[dict[str, Any]]
    matching: int


class Shown(StrictModel, arbitrary_types_allowed=True):
    """One hit of what `show` answers."""

    document: Document
    passage: FoundPassage | None
    highlights: dict[str, list[str]] | None


def read_call(kind: type[C], body: bytes | dict[str, Any]) -> C:
    """Reads a call.

    Raises:
        FormatError: if it is none of this GLOW.
    """
    try:
        return kind.model_validate(orjson.loads(body) if isinstance(body, bytes) else body)
    except (ValidationError, orjson.JSONDecodeError) as error:
        detail = describe(error) if isinstance(error, ValidationError) else str(error)
        raise FormatError(
            f"not a call of a router of this GLOW: {detail}; run the same version everywhere"
        ) from error


def found_to_json(found: Found) -> bytes:
    """What `rank` answers, as bytes; a score that is not known is null."""
    each = found.candidates
    return orjson.dumps(
        {
            "ids": found.ids,
            "rows": each.rows,
            "dense": each.dense,
            "lexical": each.lexical,
            "passages": each.passages,
            "found_dense": each.found_dense,
            "found_lexical": each.found_lexical,
            "head": each.head,
            "metadata": found.metadata,
            "matching": found.matching,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def found_from_json(body: bytes) -> Found:
    """Reads what `found_to_json` wrote.

    Raises:
        FormatError: if it is something else.
    """
    try:
        value = orjson.loads(body)
        candidates = ShardCandidates(
            _rows(value["rows"]),
            _scores(value["dense"]),
            _scores(value["lexical"]),
            _rows(value["passages"]),
            _rows(value["found_dense"]),
            _rows(value["found_lexical"]),
            None if value["head"] is None else _scores(value["head"]),
        )
        count = len(value["ids"])
        arrays = (candidates.rows, candidates.dense, candidates.lexical, candidates.passages)
        if any(len(array) != count for array in arrays) or len(value["metadata"]) not in (0, count):
            raise ValueError("arrays of different lengths")
        _require(value["ids"], str)
        _require(value["metadata"], dict)
        if np.isinf(candidates.dense).any() or np.isinf(candidates.lexical).any():
            raise ValueError("scores without bound")
        for places in (candidates.found_dense, candidates.found_lexical):
            if len(places) and not 0 <= int(places.min()) <= int(places.max()) < count:
                raise ValueError("places beyond the candidates")
        return Found.model_construct(
            ids=value["ids"],
            candidates=candidates,
            metadata=value["metadata"],
            matching=int(value["matching"]),
        )
    except _LIES as error:
        raise _lie() from error


def shown_from_json(body: bytes) -> list[Shown]:
    """Reads the hits that a shard shows.

    Raises:
        FormatError: if they are something else.
    """
    try:
        hits = orjson.loads(body)["hits"]
        _require(hits, dict)
        return [
            Shown.model_construct(
                document=_document(hit),
                passage=_passage(hit["passage"]),
                highlights=_highlights(hit["highlights"]),
            )
            for hit in hits
        ]
    except _LIES as error:
        raise _lie() from error


def document_to_json(document: Document) -> dict[str, Any]:
    """A document as JSON values."""
    return {"id": document.id, "fields": document.fields, "metadata": document.metadata}


def document_from_json(body: bytes) -> tuple[Document, NDArray[np.float32] | None]:
    """Reads the document that a shard sends, and its vector, float32 [D]; None if it was not asked for.

    Raises:
        FormatError: if it is something else.
    """
    try:
        value = orjson.loads(body)
        vector = None if value["vector"] is None else np.array(value["vector"], np.float32)
        if vector is not None and (vector.ndim != 1 or not np.isfinite(vector).all()):
            raise ValueError("no vector")
        return _document(value), vector
    except _LIES as error:
        raise _lie() from error


def has_vectors_from_json(body: bytes) -> bool:
    """Whether a shard that opened a version can read vectors by document.

    Raises:
        FormatError: if it says something else.
    """
    try:
        return bool(orjson.loads(body)["has_vectors"])
    except _LIES as error:
        raise _lie() from error


_LIES = (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError, OverflowError)


def _lie() -> FormatError:
    # Nothing of what came: whoever reads the error is not to see bytes of who knows what.
    return FormatError("not a response of a shard of this GLOW; run the same version everywhere")


def _require(values: Any, kind: type) -> None:
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise ValueError("values of another type")


def _document(value: Mapping[str, Any]) -> Document:
    fields = value["fields"]
    _require([value["id"]], str)
    _require([fields, value["metadata"]], dict)
    for texts in fields.values():
        _require(texts, str)
    return Document(value["id"], {name: tuple(texts) for name, texts in fields.items()}, value["metadata"])


def _passage(value: Any) -> FoundPassage | None:
    if value is None:
        return None
    passage = FoundPassage(**value)
    _require([passage.field, passage.text], str)
    _require([passage.start, passage.end], int)
    return passage


def _highlights(value: Any) -> dict[str, list[str]] | None:
    if value is None:
        return None
    _require([value], dict)
    for texts in value.values():
        _require(texts, str)
    return dict(value)


def _rows(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def _scores(values: Sequence[float | None]) -> NDArray[np.float32]:
    # orjson writes NaN as null, which numpy reads as NaN.
    return np.array(values, np.float32)
