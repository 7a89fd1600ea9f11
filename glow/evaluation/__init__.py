"""Retrieval quality: measures over BEIR folders, TREC runs, fusion and paired comparison.

Importing this room needs no extra. Measures need `ir-measures` and the lexical baseline needs `bm25s`; both come with
`pip install glow-retrieval[eval]` and are loaded when first used.
"""

from glow.evaluation.fusion import rrf
from glow.evaluation.measures import DEFAULT_MEASURES, Evaluation, evaluate
from glow.evaluation.ncg import ncg
from glow.evaluation.retrieve import DenseOptions, Retriever, RetrieverKind, open_retriever
from glow.evaluation.runs import Run, read_run, write_run
from glow.evaluation.significance import Comparison, compare
from glow.evaluation.task import Corpus, Task, find_tasks

__all__ = [
    "DEFAULT_MEASURES",
    "Comparison",
    "Corpus",
    "DenseOptions",
    "Evaluation",
    "Retriever",
    "RetrieverKind",
    "Run",
    "Task",
    "compare",
    "evaluate",
    "find_tasks",
    "ncg",
    "open_retriever",
    "read_run",
    "rrf",
    "write_run",
]
