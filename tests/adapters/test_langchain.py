"""LangChain's own standard tests, against a running service."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests, VectorStoreIntegrationTests

from glow.adapters import GlowStore
from glow.adapters.langchain import GlowRetriever, GlowVectorStore
from glow.client import GlowClient
from glow.errors import ConfigError
from tests.adapters.conftest import KEY

# ruff: noqa: D101 - what their classes ask for


class TestGlowVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, new_store: Callable[[], GlowStore]) -> Any:
        return GlowVectorStore(new_store())


class TestGlowRetriever(RetrieversIntegrationTests):
    opened: GlowStore

    @pytest.fixture(autouse=True)
    def _store(self, documents: GlowStore) -> None:
        type(self).opened = documents

    @property
    def retriever_constructor(self) -> type[GlowRetriever]:
        return GlowRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"store": self.opened}

    @property
    def retriever_query_example(self) -> str:
        return "how do bees find home"


def test_what_is_found_has_its_fields(documents: GlowStore) -> None:
    (found,) = GlowRetriever(store=documents, k=1).invoke("how do bees find home")
    assert found.page_content == "Honey bees find home by the sun."
    metadata = {"lang": "en", "title": "How bees find home", "url": "https://example.org/bees"}
    assert metadata.items() <= found.metadata.items()


def test_a_filter_may_be_values_by_field_or_the_services(documents: GlowStore) -> None:
    def found(wanted: dict[str, Any]) -> list[str | None]:
        hits = GlowRetriever(store=documents, k=9, filter=wanted).invoke("bees")
        return [each.metadata["title"] for each in hits]

    assert found({"lang": "de"}) == found({"field": "lang", "eq": "de"}) == ["Dampfloks"]
    assert len(found({"lang": ["de", "en"]})) == 3
    assert found({"lang": "en", "namespace": "nobody's"}) == []


def test_a_store_from_texts(service: str) -> None:
    texts, metadata = ["a lynx in the snow", "a ship at sea"], [{"n": 1}, {"n": 2}]
    place = {"url": service, "write_key": KEY, "namespace": "texts"}
    store = GlowVectorStore.from_texts(texts, None, metadata, ids=["a", "b"], **place)
    ((found, score),) = store.similarity_search_with_score("lynx", k=1)
    assert (found.id, found.metadata) == ("a", {"n": 1}) and score > 0
    with GlowClient(service) as client:
        assert client.document("texts/a").metadata["namespace"] == "texts"


def test_relevance_is_bounded_and_has_a_threshold(documents: GlowStore, service: str) -> None:
    store = GlowVectorStore(documents)
    found = store.similarity_search_with_relevance_scores("how do bees find home", k=3)
    assert len(found) == 3 and all(0.0 <= score <= 1.0 for _, score in found)
    best = found[0][1]
    more = {"k": 3, "score_threshold": best}
    kept = store.as_retriever(search_type="similarity_score_threshold", search_kwargs=more)
    assert [each.metadata["title"] for each in kept.invoke("how do bees find home")] == ["How bees find home"]
    terms = GlowVectorStore(GlowStore(service, retriever="lexical"))
    with pytest.raises(ConfigError, match="no bound"):
        terms.similarity_search_with_relevance_scores("bees")


async def test_relevance_is_traded_for_difference(new_store: Callable[[], GlowStore]) -> None:
    store = GlowVectorStore(new_store())
    texts = ["bees find home by the sun", "bees find home by the sun.", "owls hunt at night"]
    store.add_texts(texts, ids=["a", "b", "c"])
    query = "how do bees find home"
    assert {each.id for each in store.similarity_search(query, k=2)} == {"a", "b"}
    assert "c" in {each.id for each in store.max_marginal_relevance_search(query, k=2, lambda_mult=0.2)}
    retriever = store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "lambda_mult": 0.2})
    assert len(retriever.invoke(query)) == 2


async def test_what_waits_is_the_same(documents: GlowStore) -> None:
    retriever, store = GlowRetriever(store=documents, k=2), GlowVectorStore(documents)
    assert await retriever.ainvoke("bees") == retriever.invoke("bees")
    assert await store.asimilarity_search("bees", k=2) == store.similarity_search("bees", k=2)
