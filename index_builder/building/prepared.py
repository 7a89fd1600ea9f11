"""What steps leave for the next ones: the documents as they are by then, and the term table."""

from dataclasses import dataclass

from glow.index.passages import PassageMap
from glow.index.stored_fields import DocumentStore
from glow.text import TermTable
from glow_index_builder.building.corpus import CorpusStats
from glow_index_builder.building.work import Step

__all__ = ["Corpus", "Terms"]


@dataclass(frozen=True, slots=True)
class Terms:
    """The term table of the index, and the step that made it."""

    step: Step
    table: TermTable


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents as they are after a step.

    Attributes:
        step: holds the store, and `rejects.jsonl` where there are rejects.
        stats: counts and the term table of what was read.
        store: the documents.
        rejects: what is wrong -> lines.
        passages: where they are cut; None where they stay whole.
        cut: the step that cut them.
    """

    step: Step
    stats: CorpusStats
    store: DocumentStore
    rejects: dict[str, int]
    passages: PassageMap | None = None
    cut: Step | None = None

    @property
    def vectors(self) -> int:
        """Vectors that the corpus needs."""
        return len(self.passages) if self.passages else self.store.count
