"""Records that packages exchange: small, frozen, without behavior."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Document:
    """A document with several text fields."""

    id: str  # unique in its corpus; may hold `/`
    # field name -> its values in order; a missing field is absent or empty
    fields: Mapping[str, tuple[str, ...]]
    metadata: Mapping[str, Any] = field(default_factory=dict)  # every other key, as JSON values


@dataclass(frozen=True, slots=True)
class Query:
    """A query with its id."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Qrel:
    """One relevance judgment: `grade` 0 is not relevant, higher is better."""

    query_id: str
    document_id: str
    grade: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result; a higher `score` is better (cosine for dense retrieval, in [-1, 1])."""

    document_id: str
    score: float
