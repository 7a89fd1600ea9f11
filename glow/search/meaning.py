"""Snippets with similar words: finds the words of a hit that match words of the query, from the tokens that hybrid search compares."""

from collections.abc import Mapping, Set

import numpy as np
from numpy.typing import NDArray

from glow.index import Index
from glow.index.late_interaction import LATE_INTERACTION, best_in, tokens_of_field
from glow.index.passages import PASSAGES
from glow.records import Document
from glow.search.late import QueryTokens, rows_read
from glow.search.retrievers import EncodedQuery
from glow.text import Preprocessor, ReadText, TokenizerPieces, searched_words

__all__ = ["LEAST_ALIKE", "Meaning", "can_tell"]

LEAST_ALIKE = 0.45
"""Similarity from which two words match. Of pairs of unrelated words, 19 in 20 stay below .41."""

AT_ONCE = 16
"""Number of hits whose tokens are compared together."""


def can_tell(preprocessor: Preprocessor) -> bool:
    """Whether tokens can be traced to words: fields are separate, and a word has the same subword tokens everywhere."""
    schema = preprocessor.schema
    is_apart = not schema.joined and not schema.document_prefix
    has_words = preprocessor.weighting.unit == "word" and not isinstance(preprocessor.pieces, TokenizerPieces)
    return is_apart and has_words


class Meaning:
    """Finds, for the hits of one page, their words that match words of the query.

    Args:
        index: with token embeddings, and a preprocessor that `can_tell` accepts.
        query: its vector selects a document's best passage.
        tokens: of the query.
        rows: int64 [m], of the hits.
        passages: row of a document -> row of its best passage, if the search found it.
    """

    def __init__(
        self,
        index: Index,
        query: EncodedQuery,
        tokens: QueryTokens,
        rows: NDArray[np.int64],
        passages: Mapping[int, int],
    ) -> None:
        schema, term = index.preprocessor.schema, index.analyzer.term
        self._index, self._late = index, index[LATE_INTERACTION]
        self._field = index[PASSAGES].header.field if index.holds(PASSAGES) else schema.body
        self._number = schema.names.index(self._field)
        self._rows = rows_read(index, rows, passages, query.vector)
        self._block, self._answers = range(0), dict[int, tuple[list[int], list[float]]]()
        self._columns: dict[str, list[int]] = {}
        asked, searched = list[int](), set(searched_words(tokens.tokens.words))
        for place, number in enumerate(tokens.tokens.word_ids.tolist()):
            word = tokens.tokens.words[number] if number >= 0 else ""
            if word in searched:
                self._columns.setdefault(term(word), []).append(len(asked))
                asked.append(place)
        self._vectors = tokens.vectors[asked]

    def of(self, place: int, document: Document) -> ReadText | None:
        """The text of a hit that the tower read.

        Args:
            place: of the hit on the page; cheaper if they come in order.
            document: of the hit.

        Returns:
            None if the text is in several values, if the tower read nothing of it, or if similar tokens share a code.
        """
        values = document.fields.get(self._field, ())
        if place not in self._block:
            self._compare(place)
        if len(values) != 1 or place not in self._answers:
            return None
        text, start = values[0], 0
        if self._index.holds(PASSAGES):
            passage = self._index[PASSAGES].passage_of(document, int(self._rows[place]))
            text, start = passage.text, passage.start
        tokens, alike = self._answers[place]

        def answers(terms: Set[str]) -> Mapping[str, int]:
            found = {}
            for term, columns in self._columns.items():
                if term in terms:
                    # Of a word of several subword tokens, the best matched one.
                    best = max(columns, key=alike.__getitem__)
                    if alike[best] >= LEAST_ALIKE:
                        found[term] = tokens[best]
            return found

        return ReadText(self._field, start, text, answers)

    def _compare(self, place: int) -> None:
        """Matches each token of the query in the texts of a hit and the next ones."""
        rows, late = self._rows[place : place + AT_ONCE], self._late
        self._block, self._answers = range(place, place + len(rows)), {}
        codes, starts = late.read(rows)
        parts = {}
        for number, (row, start) in enumerate(zip(rows.tolist(), starts.tolist(), strict=True), place):
            places = late.places(row)
            own = tokens_of_field(places, self._number)
            if own.start < own.stop and len(places) < late.header.budget:
                parts[number] = slice(start + own.start, start + own.stop)
        found = best_in(codes, list(parts.values()), self._vectors)
        answered = zip(found.places.tolist(), found.similarities.tolist(), strict=True)
        self._answers = dict(zip(parts, answered, strict=True))
