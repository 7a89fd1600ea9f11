"""Kinds of index, and the documents that go into them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from glow.index import COMPONENTS
from glow.records import Document
from tests.conftest import DATA
from tests.made_index import documents


@dataclass(frozen=True)
class Kind:
    """A kind of index."""

    options: Mapping[str, Any]  # of its build
    lacks: frozenset[str] = frozenset()  # components that it has not


KINDS = {
    "whole": Kind(
        {
            "passages": True,
            "max_passages": 3,
            "learned": True,
            "learned_budget": 30,
            "rerank": DATA / "toy-reranker",
            "index": "flat",
            "analyzer": "english",
        }
    ),
    "plain": Kind(
        {"analyzer": "plain", "index": "hnsw"}, frozenset({"passages", "learned_sparse", "token_embeddings"})
    ),
}
CASES = [
    pytest.param((kind, component.name), id=f"{kind}-{component.name}")
    for kind in KINDS
    for component in COMPONENTS
    if component.name not in KINDS[kind].lacks
]
"""Every component in every kind that holds it."""


def _made(numbers: Iterable[int], prefix: str) -> list[dict[str, Any]]:
    """Documents of `made_index` with bodies of one to many passages, the same text in some; numbers and texts in one field."""
    found = documents(80)
    return [
        {
            **found[number],
            "_id": f"{prefix}/{number}",
            "text": found[number % 30]["text"] * (1 + number % 4 * 6),
            "code": number if number % 2 else f"c{number}",
        }
        for number in numbers
    ]


OLD = _made(range(40), "d")
"""Of a base."""
NEW = [
    *({**each, "lang": "is", "day": "later"} for each in OLD[:3]),
    {**OLD[3], "title": "zeppelins", "text": "Nothing of the kind, but owls, tea and zeppelins."},
    *_made((41, 64, 65, 66), "new"),
    {**OLD[8], "_id": "d/08"},
    {"_id": "empty", "title": "", "text": "the of"},
]
"""Of a delta: replaced by other metadata or another text, new, equal to one of the base, and without a word to search for."""


def document_of(record: Mapping[str, Any]) -> Document:
    fields = {name: (record[name],) for name in ("title", "text")}
    metadata = {name: record[name] for name in record if name not in ("_id", *fields)}
    return Document(record["_id"], fields, metadata)
