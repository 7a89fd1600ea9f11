"""Measures retrieval quality: BEIR data directories, TREC runs, and paired comparison.

Importing this package needs no extra. Measures need `ir-measures`, the t-test `scipy`, and the lexical baseline
`bm25s`. All come with `pip install glow-retrieval[eval]` and are loaded on first use.
"""

from glow.evaluation.comparison import (
    Comparison,
    Difference,
    Unseen,
    compare,
    compare_all,
    holm,
    paired_t_test,
    unseen_queries,
)
from glow.evaluation.corpus_index import DenseOptions
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
from glow.evaluation.retrievers import (
    DenseRetriever,
    FusedRetriever,
    LexicalRetriever,
    Retriever,
    RetrieverKind,
    open_retriever,
)
from glow.evaluation.runs import Run, read_run, write_run
from glow.evaluation.task import Corpus, Task, find_tasks, read_judgements
from glow.evaluation.version import DEPTH, VersionSearch, mean_overlap, sample_texts

__all__ = [
    "DEFAULT_MEASURES", "DEPTH", "MEASURE_SETS", "Comparison", "Corpus", "DenseOptions", "DenseRetriever", "Difference",
    "Evaluation", "FusedRetriever", "LexicalRetriever", "Retriever", "RetrieverKind", "Run", "Task", "Unseen",
    "VersionSearch", "compare", "compare_all", "dcg", "err", "evaluate", "find_tasks", "grades_by_query", "holm",
    "mean_overlap", "ncg", "ndcg", "open_retriever", "paired_t_test", "read_judgements", "read_run", "sample_texts",
    "unseen_queries", "write_run",
]  # fmt: skip
