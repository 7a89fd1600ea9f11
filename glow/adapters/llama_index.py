"""LlamaIndex: a retriever over a GLOW service, and writing nodes to it (extra `llama-index`)."""

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import FilterCondition, MetadataFilters

from glow.adapters.store import GlowStore, comparison
from glow.errors import ConfigError


class GlowLlamaRetriever(BaseRetriever):
    """A LlamaIndex retriever over a GLOW service; filters are LlamaIndex's, or as for `GlowStore.search`."""

    def __init__(
        self,
        store: GlowStore,
        similarity_top_k: int = 10,
        filters: MetadataFilters | dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._store, self._k = store, similarity_top_k
        self._filter = _service_filter(filters) if isinstance(filters, MetadataFilters) else filters

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        texts = self._store.search(query_bundle.query_str, self._k, self._filter)
        nodes = (TextNode(id_=each.id, text=each.text, metadata=each.metadata) for each in texts)
        return [NodeWithScore(node=node, score=each.score) for node, each in zip(nodes, texts, strict=True)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def add_nodes(store: GlowStore, nodes: Sequence[BaseNode]) -> list[str]:
    """Writes LlamaIndex nodes to a store; returns their ids."""
    ids, texts = [node.node_id for node in nodes], [node.get_content(MetadataMode.NONE) for node in nodes]
    store.write(ids, texts, [node.metadata for node in nodes])
    return ids


def delete_nodes(store: GlowStore, ids: Sequence[str]) -> None:
    """Deletes nodes by id."""
    store.delete(ids)


def _service_filter(filters: MetadataFilters) -> dict[str, Any]:
    if filters.condition not in (FilterCondition.AND, FilterCondition.OR):
        raise ConfigError(f"filters can be joined by `and` or `or`, not by {filters.condition}")
    parts = [
        _service_filter(each)
        if isinstance(each, MetadataFilters)
        else comparison(each.key, each.operator.value, each.value)
        for each in filters.filters
    ]
    return {filters.condition.value: parts}
