"""The retrievers that can be evaluated: dense and hybrid as served, and the lexical baseline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from glow.errors import ConfigError, InputError
from glow.evaluation.retrieval.corpus_index import DenseOptions, Progress
from glow.evaluation.retrieval.lexical import LexicalRetriever
from glow.evaluation.retrieval.served import DenseRetriever, HybridRetriever
from glow.evaluation.runs import Run
from glow.evaluation.task import Corpus
from glow.records import Query
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.search import fuse

__all__ = [
    "DenseOptions", "FusedRetriever", "HybridRetriever", "Retriever", "RetrieverKind", "open_retriever",
]  # fmt: skip

RetrieverKind = Literal["dense", "lexical", "learned-sparse", "hybrid"]


class Retriever(Protocol):
    """Searches documents for queries.

    Attributes:
        ids: ids of the searchable documents.
    """

    ids: list[str]

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """At most k hits of each query, best first."""
        ...


class FusedRetriever:
    """Reciprocal rank fusion of the k best hits of several retrievers."""

    def __init__(self, parts: Sequence[Retriever]) -> None:
        self._parts = parts
        self.ids = list(dict.fromkeys(identifier for part in parts for identifier in part.ids))

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """At most k hits of each query, best first; scores are sums of reciprocal ranks."""
        return fuse([part.search(queries, k) for part in self._parts], k)


def open_retriever(
    kind: RetrieverKind,
    data: Path,
    model: Model | None,
    options: DenseOptions,
    progress: Progress | None = None,
) -> Retriever:
    """Reads a corpus and makes it searchable.

    Args:
        kind: the retriever.
        data: the data directory.
        model: the model; not needed for `lexical`.
        options: options of encoding; not needed for `lexical`.
        progress: called with the progress of the encoding.

    Raises:
        ConfigError: if the model is missing.
        InputError: if the corpus cannot be read, or is empty.
        GlowError: as the retrievers.
    """
    schemas = [FieldSchema.preset("glow-default"), *([model.preprocessor.schema] if model else [])]
    specs = {spec.name: spec for schema in schemas for spec in schema.fields}
    corpus = Corpus(data, tuple(specs))
    text_fields = [spec.name for spec in specs.values() if spec.kind == "text"]
    retriever: Retriever
    if kind == "lexical":
        retriever = LexicalRetriever(corpus, text_fields)
    elif kind == "learned-sparse":
        raise ConfigError(
            "retriever 'learned-sparse' is measured over an index that was built with --learned-sparse: give --index-root"
        )
    elif model is None:
        raise ConfigError(f"retriever {kind!r} needs a model; give --model")
    else:
        opened = DenseRetriever if kind == "dense" else HybridRetriever
        retriever = opened(model, corpus, options, progress)
    if not retriever.ids:
        raise InputError(f"{data.name}/corpus.jsonl holds no document with text")
    return retriever
