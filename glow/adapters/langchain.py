"""LangChain: a retriever and a vector store over a GLOW service (extra `langchain`).

Vectors are the service's own: the store takes an `embedding` where LangChain's interface wants one, and does not use it.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from pydantic import ConfigDict

from glow.adapters.local import LocalService
from glow.adapters.store import FoundText, GlowStore, records_of
from glow.errors import ConfigError

__all__ = ["GlowRetriever", "GlowVectorStore"]


class GlowRetriever(BaseRetriever):
    """Documents for a question.

    Attributes:
        store: where they are.
        k: how many.
        filter: as the service has it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: GlowStore
    k: int = 10
    filter: dict[str, Any] | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **unused: Any
    ) -> list[Document]:
        return [_document(found) for found in self.store.search(query, k or self.k, self.filter)]


class GlowVectorStore(VectorStore):
    """Texts that are written to the service and found by it.

    Args:
        store: where they are; it needs a key for writing.
    """

    def __init__(self, store: GlowStore) -> None:
        self._store = store
        self._local: LocalService | None = None

    @property
    def embeddings(self) -> Embeddings | None:
        """None: the service encodes."""
        return None

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **unused: Any,
    ) -> list[str]:
        """Adds texts, or replaces those with the same ids; returns the ids."""
        listed = list(texts)
        named = list(ids) if ids else [uuid.uuid4().hex for _ in listed]
        self._store.write(named, listed, metadatas or [{}] * len(listed))
        return named

    def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """Adds documents, or replaces those with the same ids; returns the ids."""
        given: list[str] | None = kwargs.pop("ids", None)
        ids = given or [document.id or uuid.uuid4().hex for document in documents]
        texts = [document.page_content for document in documents]
        return self.add_texts(texts, [document.metadata for document in documents], ids=ids, **kwargs)

    def delete(self, ids: list[str] | None = None, **unused: Any) -> bool:
        """Deletes texts by id."""
        self._store.delete(ids or [])
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Texts by id, those that are there."""
        return [_document(found) for identifier in ids if (found := self._store.get(identifier)) is not None]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Texts for a query; `filter` as the service has it."""
        return [_document(found) for found in self._store.search(query, k, kwargs.get("filter"))]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Texts for a query with the scores that rank them."""
        return [
            (_document(found), found.score) for found in self._store.search(query, k, kwargs.get("filter"))
        ]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Texts that answer a query and differ from each other, by the vectors that the service stores.

        Args:
            query: what to search for.
            k: how many.
            fetch_k: how many to choose from.
            lambda_mult: 1 for relevance alone, 0 for difference alone.
            kwargs: `filter`, as the service has it.
        """
        found = self._store.search(query, fetch_k, kwargs.get("filter"), vectors=True)
        (asked,) = self._store.client.embeddings([query]).vectors
        chosen = maximal_marginal_relevance(
            np.array(asked), [list(each.vector) for each in found], lambda_mult, k
        )
        return [_document(found[place]) for place in chosen]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Relevance in [0, 1]: hybrid scores are probabilities, dense ones cosines.

        Raises:
            ConfigError: if the store searches by terms alone, whose scores have no bound.
        """
        if self._store.retriever in ("lexical", "learned"):
            raise ConfigError(
                f"scores of the retriever {self._store.retriever} have no bound, so they cannot be relevance scores; search with hybrid or dense"
            )
        return lambda score: min(max(score, 0.0), 1.0)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        index_root: Path | str | None = None,
        **kwargs: Any,
    ) -> "GlowVectorStore":
        """A store with texts in it.

        Args:
            texts, metadatas, ids: of the texts.
            embedding: not used.
            index_root: directory of an index that is built of the texts, and served until the program ends; None: the texts
                are written to the service `url`.
            kwargs: those of `GlowStore`.
        """
        if index_root is None:
            made = cls(GlowStore(**kwargs))
            made.add_texts(texts, metadatas, ids=list(ids) if ids else None)
            return made
        named = list(ids) if ids else [uuid.uuid4().hex for _ in texts]
        local = LocalService(records_of(named, texts, metadatas or [{}] * len(texts)), Path(index_root))
        made = cls(GlowStore(local.url, write_key=local.write_key, **kwargs))
        made._local = local
        return made


def _document(found: FoundText) -> Document:
    return Document(id=found.id, page_content=found.text, metadata=found.metadata)
