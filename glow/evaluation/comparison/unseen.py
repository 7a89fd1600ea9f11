"""Queries apart whose relevant documents another split never showed: a model can know the others by heart.

In a click log most documents that are relevant in a dev split are relevant to other queries in the train split too. A
gain on such documents may be memory; a gain on the others is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from glow.evaluation.measures import Evaluation
from glow.records import Qrel

__all__ = ["Unseen", "unseen_queries"]

# What training takes as a positive (glow.training.data.dataset), whatever grade the measured split calls relevant.
SEEN_GRADE = 1


@dataclass(frozen=True, slots=True, eq=False)
class Unseen:
    """The part of an evaluation that another split did not show.

    Attributes:
        split: name of that other split.
        evaluation: values of the unseen queries only.
    """

    split: str
    evaluation: Evaluation


def unseen_queries(qrels: Sequence[Qrel], shown: Sequence[Qrel], rel: int = 1) -> frozenset[str]:
    """Queries none of whose relevant documents is relevant to a query of another split.

    Args:
        qrels: judgements of the measured split.
        shown: judgements of the other split; grades >= 1 are relevant there.
        rel: lowest relevant grade of the measured split.

    Returns:
        Ids of judged queries. One without any relevant document is among them, as nothing of it was shown.
    """
    known = {qrel.document_id for qrel in shown if qrel.grade >= SEEN_GRADE}
    seen = {qrel.query_id for qrel in qrels if qrel.grade >= rel and qrel.document_id in known}
    return frozenset(qrel.query_id for qrel in qrels) - seen
