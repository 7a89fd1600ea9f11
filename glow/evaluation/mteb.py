"""GLOW as an MTEB model for retrieval tasks: dense, lexical or hybrid (extra `mteb`).

import mteb
from glow.evaluation.mteb import GlowSearch
mteb.evaluate(GlowSearch(retriever="hybrid"), mteb.get_tasks(tasks=["NFCorpus"]))
"""

import importlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glow.artifact import default_model
from glow.evaluation.retrieval import DenseOptions, Retriever, RetrieverKind, open_retriever
from glow.records import Query
from glow.runtime import Model

__all__ = ["GlowSearch"]


class GlowSearch:
    """Implements MTEB's search protocol.

    Args:
        model: model directory; None: the default model.
        retriever: `dense`, `lexical` or `hybrid`.
        threads: threads of one encoding; 0: all cores.
    """

    def __init__(
        self, model: Path | None = None, retriever: RetrieverKind = "hybrid", threads: int = 0
    ) -> None:
        self._model = None if retriever == "lexical" else Model.open(model or default_model())
        self._kind = retriever
        self._options = DenseOptions(threads=threads or os.cpu_count() or 1)
        self._opened: Retriever | None = None

    @property
    def mteb_model_meta(self) -> Any:
        """The metadata under which MTEB stores results."""
        meta = importlib.import_module("mteb.models").ModelMeta  # takes a second, so it is imported only here
        name = "bm25" if self._model is None else self._model.manifest.name
        revision = None if self._model is None else self._model.hash[:12]
        return meta.create_empty(overwrites={"name": f"glow/{name}-{self._kind}", "revision": revision})

    def index(self, corpus: Any, **unused: Any) -> None:
        """Encodes an MTEB corpus."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            with (path / "corpus.jsonl").open("w", encoding="utf-8") as file:
                for row in corpus:
                    record = {
                        "_id": row["id"],
                        "title": row.get("title") or "",
                        "text": row.get("text") or "",
                    }
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
            self._opened = open_retriever(self._kind, path, self._model, self._options)

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, list[str]] | None = None, **unused: Any
    ) -> dict[str, dict[str, float]]:
        """Scores of the best documents for each query; in a re-ranking task, of the best candidates."""
        assert self._opened is not None  # noqa: S101 - MTEB indexes first
        asked = [Query(row["id"], row["text"]) for row in queries]
        depth = len(self._opened.ids) if top_ranked is not None else top_k
        run = self._opened.search(asked, depth)
        found = {query: {hit.document_id: hit.score for hit in hits} for query, hits in run.items()}
        if top_ranked is None:
            return found
        return {
            query: {identifier: scores.get(identifier, 0.0) for identifier in top_ranked.get(query, [])}
            for query, scores in found.items()
        }
