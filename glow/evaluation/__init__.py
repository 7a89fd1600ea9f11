"""Measures retrieval quality: BEIR data directories, TREC runs, fusion, paired comparison and failure analysis.

Importing this package needs no extra. Measures need `ir-measures`, and the lexical baseline needs `bm25s`. Both come
with `pip install glow-retrieval[eval]` and are loaded on first use.
"""

from glow.evaluation.comparison import (
    Analysis,
    Comparison,
    Unseen,
    analyse,
    compare,
    compare_all,
    holm,
    paired_t_test,
    t_tail,
    unseen_queries,
)
from glow.evaluation.judgements import read_judgements
from glow.evaluation.measures import (
    DEFAULT_MEASURES,
    MEASURE_SETS,
    Evaluation,
    dcg,
    err,
    evaluate,
    grades_by_query,
    ncg,
    ndcg,
)
from glow.evaluation.retrieval import (
    DEPTH,
    DenseOptions,
    DenseRetriever,
    FusedRetriever,
    LexicalRetriever,
    Retriever,
    RetrieverKind,
    VersionSearch,
    mean_overlap,
    open_retriever,
)
from glow.evaluation.runs import Run, read_run, write_run
from glow.evaluation.sample import sample_texts
from glow.evaluation.task import Corpus, Task, find_tasks
from glow.search import fuse, rrf

__all__ = [
    "DEFAULT_MEASURES", "DEPTH", "MEASURE_SETS", "Analysis", "Comparison", "Corpus", "DenseOptions",
    "DenseRetriever", "Evaluation", "FusedRetriever", "LexicalRetriever", "Retriever", "RetrieverKind", "Run",
    "Task", "Unseen", "VersionSearch", "analyse", "compare", "compare_all", "dcg", "err", "evaluate",
    "find_tasks", "fuse", "grades_by_query", "holm", "mean_overlap", "ncg", "ndcg", "open_retriever",
    "paired_t_test", "read_judgements", "read_run", "rrf", "sample_texts", "t_tail", "unseen_queries",
    "write_run",
]  # fmt: skip
