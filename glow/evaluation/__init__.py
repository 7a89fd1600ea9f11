"""Retrieval quality: measures over BEIR folders, TREC runs, fusion, paired comparison and failure analysis.

Importing this room needs no extra. Measures need `ir-measures` and the lexical baseline needs `bm25s`; both come with
`pip install glow-retrieval[eval]` and are loaded when first used.
"""

from glow.evaluation.err import err
from glow.evaluation.failures import Analysis, analyse
from glow.evaluation.judgements import read_judgements
from glow.evaluation.measures import DEFAULT_MEASURES, MEASURE_SETS, Evaluation, evaluate
from glow.evaluation.ncg import ncg
from glow.evaluation.retrieve import DenseOptions, Retriever, RetrieverKind, open_retriever
from glow.evaluation.runs import Run, read_run, write_run
from glow.evaluation.significance import Comparison, compare, compare_all, holm
from glow.evaluation.student import paired_t_test
from glow.evaluation.task import Corpus, Task, find_tasks
from glow.evaluation.unseen import Unseen, unseen_queries
from glow.search.fusion import fuse, rrf

__all__ = [
    "DEFAULT_MEASURES",
    "MEASURE_SETS",
    "Analysis",
    "Comparison",
    "Corpus",
    "DenseOptions",
    "Evaluation",
    "Retriever",
    "RetrieverKind",
    "Run",
    "Task",
    "Unseen",
    "analyse",
    "compare",
    "compare_all",
    "err",
    "evaluate",
    "find_tasks",
    "fuse",
    "holm",
    "ncg",
    "open_retriever",
    "paired_t_test",
    "read_judgements",
    "read_run",
    "rrf",
    "unseen_queries",
    "write_run",
]
