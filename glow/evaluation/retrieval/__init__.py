"""The retrievers that can be evaluated."""

from glow.evaluation.retrieval.corpus_index import DenseOptions
from glow.evaluation.retrieval.lexical import LexicalRetriever
from glow.evaluation.retrieval.retrieve import FusedRetriever, Retriever, RetrieverKind, open_retriever
from glow.evaluation.retrieval.served import DenseRetriever, open_version
from glow.evaluation.retrieval.version import DEPTH, VersionSearch, mean_overlap

__all__ = [
    "DEPTH", "DenseOptions", "DenseRetriever", "FusedRetriever", "LexicalRetriever", "Retriever",
    "RetrieverKind", "VersionSearch", "mean_overlap", "open_retriever", "open_version",
]  # fmt: skip
