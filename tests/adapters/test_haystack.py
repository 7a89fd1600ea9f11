"""Haystack's own tests of document stores, against a running service, and a pipeline."""

from typing import Any

import pytest
from haystack import Document, Pipeline
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DocumentStore, DuplicatePolicy
from haystack.testing.document_store import (
    CountDocumentsTest,
    DeleteDocumentsTest,
    FilterDocumentsTest,
    WriteDocumentsTest,
)

from glow.adapters.haystack import GlowDocumentStore, GlowHaystackRetriever
from glow.errors import ConfigError
from tests.adapters.conftest import KEY

# ruff: noqa: D101 - what their classes ask for


class TestGlowDocumentStore(CountDocumentsTest, WriteDocumentsTest, DeleteDocumentsTest, FilterDocumentsTest):
    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        """In any order, and without the embeddings of the writer: the service makes its own."""
        shown = [
            sorted((each.id, each.content or "", str(sorted(each.meta.items()))) for each in side)
            for side in (received, expected)
        ]
        assert shown[0] == shown[1]

    @pytest.fixture
    def document_store(self, service: str, request: pytest.FixtureRequest) -> Any:
        return GlowDocumentStore(url=service, write_key=KEY, namespace=request.node.name)

    def test_write_documents(self, document_store: DocumentStore) -> None:
        document = Document(id="1", content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document], DuplicatePolicy.NONE)

    def test_filters(self, document_store: DocumentStore) -> None:
        numbers = range(5)
        document_store.write_documents(
            [Document(id=str(each), content=f"a note, {each}", meta={"number": each}) for each in numbers]
        )
        found = document_store.filter_documents({"field": "meta.number", "operator": ">=", "value": 3})
        assert sorted(each.id for each in found) == ["3", "4"]


def test_a_pipeline_finds(service: str) -> None:
    store = GlowDocumentStore(url=service, namespace="docs")
    pipeline = Pipeline()
    pipeline.add_component("retriever", GlowHaystackRetriever(store, top_k=1))
    found = pipeline.run({"retriever": {"query": "how do bees find home"}})["retriever"]["documents"]
    assert found[0].meta["title"] == "How bees find home" and found[0].score > 0
    loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=["glow.adapters.haystack"])
    again = loaded.run({"retriever": {"query": "how do bees find home"}})
    assert again["retriever"]["documents"] == found
    saved = GlowDocumentStore(url=service, api_key="secret", namespace="docs").to_dict()
    assert "secret" not in str(saved)
    assert GlowDocumentStore.from_dict(saved).count_documents() == 3


GERMAN = {"field": "meta.lang", "operator": "==", "value": "de"}
EITHER = {"field": "meta.lang", "operator": "in", "value": ["de", "en"]}


@pytest.mark.parametrize(
    ("filters", "titles"),
    [
        (GERMAN, {"Dampfloks"}),
        ({"field": "meta.lang", "operator": "not in", "value": ["de"]}, {"How bees find home", "Owls"}),
        ({"field": "meta.lang", "operator": "==", "value": None}, set()),
        ({"field": "meta.lang", "operator": "!=", "value": "en"}, {"Dampfloks"}),
        ({"lang": "de"}, {"Dampfloks"}),
        ({"field": "lang", "eq": "de"}, {"Dampfloks"}),
        (
            {"operator": "OR", "conditions": [GERMAN, {"operator": "NOT", "conditions": [EITHER]}]},
            {"Dampfloks"},
        ),
    ],
)
def test_a_retriever_takes_haystacks_filters(filters: dict[str, Any], titles: set[str], service: str) -> None:
    retriever = GlowHaystackRetriever(GlowDocumentStore(url=service, namespace="docs"), filters=filters)
    found = {each.meta["title"] for each in retriever.run("bees and steam")["documents"]}
    assert found == titles


@pytest.mark.parametrize(
    "filters",
    [
        {"field": "meta.lang", "operator": "like", "value": "d"},
        {"field": "meta.n", "operator": ">", "value": None},
        {"operator": "XOR", "conditions": []},
    ],
)
def test_a_filter_that_the_service_lacks_is_told(filters: dict[str, Any], service: str) -> None:
    retriever = GlowHaystackRetriever(GlowDocumentStore(url=service, namespace="docs"))
    with pytest.raises(ConfigError):
        retriever.run("bees", filters=filters)
