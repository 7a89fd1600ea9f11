"""The shop and the help desk, each built with the default model and served as users serve it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.artifact import default_model
from tests.attacks.harness import serving
from tests.made_index import made, write
from tests.shop.collections import Case, Document, off_subject_queries, products, tickets

PAGE = 40
SYNONYMS = "couch, sofa\nmower => lawn mower\n"


@dataclass(frozen=True)
class Searched:
    """A collection behind a running service."""

    http: httpx.Client
    documents: dict[str, Document]
    answers: dict[str, Any] = field(default_factory=dict)

    def best(self, query: str) -> dict[str, Any]:
        """The response with the first hit alone; each query is asked once."""
        if query not in self.answers:
            self.answers[query] = self.ask(query, top_k=1, fields=[])
        return dict(self.answers[query])

    def ask(self, query: str, **more: Any) -> dict[str, Any]:
        response = self.http.post("/search", json={"query": query, **more})
        assert response.status_code == 200, (query, response.text)
        return dict(response.json())

    def first(self, query: str, **more: Any) -> list[Document]:
        """The documents of the first page."""
        return [self.documents[hit["id"]] for hit in self.ask(query, **more)["hits"]]

    def matches(self, query: str, **more: Any) -> list[Document]:
        """The documents of all pages, which are as many as each page says."""
        ids: list[str] = []
        total = None
        while total is None or len(ids) < total:
            page = self.ask(query, top_k=PAGE, offset=len(ids), **more)
            assert total in (None, page["total"])
            total = page["total"]
            assert page["hits"] or len(ids) == total, f"{len(ids)} of {total} matches are on pages"
            ids += [hit["id"] for hit in page["hits"]]
        assert len(ids) == total == len(set(ids))
        return [self.documents[each] for each in ids]

    def holding(self, *words: str) -> set[str]:
        """The ids of documents that hold all these words or phrases."""
        found = self.documents.items()
        return {key for key, document in found if all(holds(document, word) for word in words)}


def holds(document: Document, word: str) -> bool:
    """Whether a document's texts and metadata have a word or a phrase."""
    texts = " | ".join(str(value) for value in document.values()).lower()
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", texts) is not None


def ids(documents: list[Document]) -> set[str]:
    return {each["_id"] for each in documents}


def expect_first(searched: Searched, cases: list[Case]) -> None:
    """At least 98 of 100 queries have a right document first."""
    found = {case: {hit["id"] for hit in searched.best(case.query)["hits"]} for case in cases}
    wrong = [case.query for case, hits in found.items() if not hits & case.right]
    assert len(wrong) <= 0.02 * len(cases), wrong


def expect_honest(searched: Searched, cases: list[Case]) -> None:
    """`none` is for other subjects; a first hit with all words of the query is beyond doubt."""
    told = {case.query: searched.best(case.query) for case in cases}
    doubted = [query for query, response in told.items() if response.get("confidence") in (None, "none")]
    assert len(doubted) <= 0.01 * len(told), doubted
    certain = {}
    for query, response in told.items():
        first = [searched.documents[hit["id"]] for hit in response["hits"]]
        if first and all(holds(first[0], word) for word in query.lower().split()):
            certain[query] = response["confidence"]
    assert len(certain) > len(cases) / 2
    assert not [query for query, confidence in certain.items() if confidence != "high"]
    others = off_subject_queries()
    sure = [query for query in others if searched.ask(query, top_k=1).get("confidence", "none") != "none"]
    assert len(sure) <= 0.25 * len(others), sure


@contextmanager
def _served(folder: Path, documents: list[Document], *flags: str) -> Iterator[Searched]:
    root = made(default_model(), write(folder / "corpus.jsonl", documents), folder / "index")
    with (
        serving(root.path, "--workers", "1", "--default-timeout-ms", "30000", *flags) as service,
        httpx.Client(base_url=service.url, timeout=60) as http,
    ):
        yield Searched(http, {each["_id"]: each for each in documents})


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    folder = tmp_path_factory.mktemp("shop")
    (synonyms := folder / "synonyms.txt").write_text(SYNONYMS, encoding="utf-8")
    with _served(folder, products(), "--synonyms", str(synonyms)) as searched:
        yield searched


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    with _served(tmp_path_factory.mktemp("desk"), tickets()) as searched:
        yield searched
