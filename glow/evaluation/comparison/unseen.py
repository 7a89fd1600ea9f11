"""Separates queries whose relevant documents are not relevant in another split; a model may have memorized the others.

In a click log, most relevant documents of a dev split are also relevant to other queries of the train split. A gain on
such documents may come from memory; a gain on the others does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from glow.evaluation.measures import Evaluation
from glow.records import Qrel

__all__ = ["Unseen", "unseen_queries"]

# Lowest grade of a positive in training (glow.training.data.dataset), independent of the measured split's.
SEEN_GRADE = 1


@dataclass(frozen=True, slots=True, eq=False)
class Unseen:
    """The unseen queries of an evaluation.

    Attributes:
        split: name of the other split.
        evaluation: values of the unseen queries only.
    """

    split: str
    evaluation: Evaluation


def unseen_queries(qrels: Sequence[Qrel], shown: Sequence[Qrel], rel: int = 1) -> frozenset[str]:
    """Queries without a relevant document that is also relevant to a query of another split.

    Args:
        qrels: judgments of the measured split.
        shown: judgments of the other split, in which grades >= 1 are relevant.
        rel: lowest relevant grade of the measured split.

    Returns:
        Ids of judged queries, including those without any relevant document.
    """
    known = {qrel.document_id for qrel in shown if qrel.grade >= SEEN_GRADE}
    seen = {qrel.query_id for qrel in qrels if qrel.grade >= rel and qrel.document_id in known}
    return frozenset(qrel.query_id for qrel in qrels) - seen
