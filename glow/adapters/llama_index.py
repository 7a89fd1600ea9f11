"""LlamaIndex: a retriever over a GLOW service, and writing nodes to it (extra `llama-index`)."""

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode

from glow.adapters.store import GlowStore

__all__ = ["GlowLlamaRetriever", "add_nodes", "delete_nodes"]


class GlowLlamaRetriever(BaseRetriever):
    """Nodes for a question.

    Args:
        store: where they are.
        k: how many.
        wanted: a filter, as the service has it.
    """

    def __init__(self, store: GlowStore, k: int = 10, wanted: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._store, self._k, self._wanted = store, k, wanted

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._store.search(query_bundle.query_str, self._k, self._wanted)
        return [
            NodeWithScore(
                node=TextNode(id_=each.id, text=each.text, metadata=each.metadata), score=each.score
            )
            for each in found
        ]


def add_nodes(store: GlowStore, nodes: Sequence[BaseNode]) -> list[str]:
    """Writes nodes, as a pipeline of LlamaIndex makes them; returns their ids."""
    ids = [node.node_id for node in nodes]
    store.write(
        ids, [node.get_content(MetadataMode.NONE) for node in nodes], [node.metadata for node in nodes]
    )
    return ids


def delete_nodes(store: GlowStore, ids: Sequence[str]) -> None:
    """Deletes nodes by id."""
    store.delete(ids)
