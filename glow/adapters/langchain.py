"""LangChain: a retriever and a vector store over a GLOW service (extra `langchain`).

The service computes the vectors. The store accepts an `embedding`, as LangChain's interface requires, and ignores it.
"""

import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
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

from glow.adapters.store import FoundText, GlowStore, records_of
from glow.client import GlowClient
from glow.errors import ConfigError, GlowError


class GlowRetriever(BaseRetriever):
    """A LangChain retriever over a GLOW service.

    Attributes:
        store: the store to search.
        k: number of documents to return.
        filter: filter as for `GlowStore.search`.
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
    """A LangChain vector store in a GLOW service.

    Args:
        store: the store of the texts; adding and deleting need a `write_key`.
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
        ids = kwargs.pop("ids", None) or [document.id or uuid.uuid4().hex for document in documents]
        texts = [document.page_content for document in documents]
        return self.add_texts(texts, [document.metadata for document in documents], ids=ids, **kwargs)

    def delete(self, ids: list[str] | None = None, **unused: Any) -> bool:
        """Deletes texts by id."""
        self._store.delete(ids or [])
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Texts by id; unknown ids are left out."""
        return [_document(found) for identifier in ids if (found := self._store.get(identifier)) is not None]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Texts that match a query; `filter` as for `GlowStore.search`."""
        return [_document(found) for found in self._store.search(query, k, kwargs.get("filter"))]

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Texts that match a query, with their ranking scores."""
        return [
            (_document(found), found.score) for found in self._store.search(query, k, kwargs.get("filter"))
        ]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Texts that match a query and differ from each other, chosen by the service's vectors.

        Args:
            query: the query.
            k: number of texts to return.
            fetch_k: number of texts to choose from.
            lambda_mult: 1 for relevance alone, 0 for diversity alone.
            kwargs: `filter`, as for `GlowStore.search`.
        """
        texts = self._store.search(query, fetch_k, kwargs.get("filter"), vectors=True)
        (vector,) = self._store.client.embeddings([query]).vectors
        chosen = maximal_marginal_relevance(
            np.array(vector), [list(each.vector) for each in texts], lambda_mult, k
        )
        return [_document(texts[place]) for place in chosen]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Function from score to relevance in [0, 1]: hybrid scores are probabilities, dense ones cosines.

        Raises:
            ConfigError: if the retriever is lexical or learned sparse, whose scores are unbounded.
        """
        if self._store.retriever in ("lexical", "learned-sparse"):
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
        """Makes a store and adds texts.

        Args:
            texts, metadatas, ids: the texts, their metadata and ids.
            embedding: ignored.
            index_root: directory for a new index of the texts, which is served until the program ends; None: write
                the texts to the service `url`.
            kwargs: arguments of `GlowStore`.
        """
        if index_root is None:
            store = cls(GlowStore(**kwargs))
            store.add_texts(texts, metadatas, ids=list(ids) if ids else None)
            return store
        named = list(ids) if ids else [uuid.uuid4().hex for _ in texts]
        local = LocalService(records_of(named, texts, metadatas or [{}] * len(texts)), Path(index_root))
        store = cls(GlowStore(local.url, write_key=local.write_key, **kwargs))
        store._local = local
        return store


def _document(found: FoundText) -> Document:
    return Document(id=found.id, page_content=found.text, metadata=found.metadata)


READY_S, POLL_S = 60.0, 0.1
GLOW = (sys.executable, "-m", "glow")


class LocalService:
    """Builds an index of documents in the format of `glow build`, and serves it until `close` or the end of the program.

    One process serves it on an address that only this machine reaches, another applies writes with `write_key`.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]], index_root: Path) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        build = [*GLOW, "build", "--input", "-", "--index-root", str(index_root)]
        done = subprocess.run(build, input=lines, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        if done.returncode:
            raise ConfigError(f"building the index failed: {_last_line(done.stderr)}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        self.url, self.write_key = f"http://127.0.0.1:{port}", secrets.token_urlsafe(24)
        secret = {"GLOW_WRITE_KEY": hashlib.sha256(self.write_key.encode()).hexdigest()}
        root = ("--index-root", str(index_root))
        serve = (*GLOW, "serve", *root, "--port", port, "--workers", "1")
        ingest = (*GLOW, "ingest", *root, "--poll-interval-s", "0.1")
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        quiet["env"] = {**os.environ, **secret}
        processes = [subprocess.Popen(command, **quiet) for command in (serve, ingest)]  # noqa: S603 - our own
        self.close = weakref.finalize(self, _stop, processes)
        self._wait(processes[0])

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + READY_S
        with GlowClient(self.url) as client:
            while time.monotonic() < until and server.poll() is None:
                try:
                    client.search("ready", top_k=1)
                    return
                except GlowError:
                    time.sleep(POLL_S)
        self.close()
        raise ConfigError(f"the service did not start on {self.url} within {READY_S:.0f} s; see `glow serve`")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
