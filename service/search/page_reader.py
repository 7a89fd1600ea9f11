"""Reads the hits of a page, a few documents at a time; stops on the way if that is much work, and goes on where it is told to."""

from collections.abc import Sequence

from glow.search import Index
from glow_service.search.answer_size import AnswerSize
from glow_service.search.calls import FoundDocument, SearchCall
from glow_service.search.clock import StageClock
from glow_service.search.explanations import Explanations
from glow_service.search.hits import Place, Snippets, causes_with, documents_of, shown_part
from glow_service.search.price import price_of_reading

__all__ = ["LongHitsError", "PageReader"]


class LongHitsError(Exception):
    """The hits are too long to be read where the search began; it keeps what it has, and is to go on elsewhere."""


class PageReader:
    """The hits of one page; of each document only what is shown is kept.

    Args:
        index: that was searched.
        call: what is shown.
        text: the query as it was searched.
        page: the hits.
        explanations: of each of them, if they are asked for.
        clock: told about both stages.

    """

    def __init__(
        self,
        index: Index,
        call: SearchCall,
        text: str,
        page: Sequence[Place],
        explanations: Explanations | None,
        clock: StageClock,
    ) -> None:
        self._call, self._clock, self._explanations = call, clock, explanations
        self._snippets = None if call.highlight is None else Snippets(index, text, call.highlight, len(page))
        self._causes = causes_with(index, call, text)
        self._size = AnswerSize(call.max_bytes, len(page), may_cut=call.may_cut)
        self._coming = enumerate(documents_of(index, page))
        self._hits = len(page)
        self._fetched = 0

    @property
    def price(self) -> int:
        """What the hits cost so far, >= 0."""
        return price_of_reading(self._fetched, 0 if self._snippets is None else self._snippets.read)

    @property
    def price_left(self) -> int:
        """What those that are left may cost, if they are like the others, >= 1."""
        done = max(len(self._size.found), 1)
        return max(-(-self.price * (self._hits - done) // done), 1)

    def run(self, most: int | None = None) -> tuple[FoundDocument, ...]:
        """Every hit of the page.

        Args:
            most: price after which hits are left for another call, >= 1; None: all are read.

        Raises:
            LongHitsError: if hits are left.
            AnswerTooLargeError: if they do not fit, and must not be cut.
            DeadlineError: if the deadline passes, or the client leaves.
        """
        clock, explanations = self._clock, self._explanations
        for place, (at, document, passage) in self._coming:
            snippets, because = None, self._causes(at.row, document)
            if self._snippets is not None:
                clock.switch("fetch")
                attended = explanations.documents[place].attended_words() if explanations else ()
                snippets = self._snippets.of(document, {*attended, *because.values()})
                clock.switch("highlight")
                clock.check()
            shown = shown_part(document, self._call)
            self._size.add(FoundDocument(at.score, at.row, at.parts, shown, passage, (), snippets, because))
            self._fetched += sum(len(value) for values in document.fields.values() for value in values)
            if most is not None and self.price >= most and place + 1 < self._hits:
                raise LongHitsError
        clock.switch("fetch")
        clock.check()
        return tuple(self._size.found)
