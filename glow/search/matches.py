"""Documents that match a query: they contain enough of its words, or are similar enough.

A search ranks candidates; its matches are what users count, sort and filter. A document matches if it holds all content
words of the query. If none does, `SOME` of the words by idf is enough. It also matches as one of the candidates whose similarity
is close to that of the nearest document. docs/decisions/0044 has the measurements behind the bounds.

    n   documents       m   matches
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glow.index import Ranking, RowMask
from glow.index.postings import ImpactsView
from glow.search.hybrid import held_words
from glow.search.query import Match, Others
from glow.search.retrievers import RankedDocuments
from glow.search.syntax import Rows, are_among, rows_in_all
from glow.text import STOP_WORDS, searched_words

SOME = 0.6
"""Share of a query's idf that a document must hold to match if no document holds all."""
NEAR, NEAREST_SHARE = 0.2, 0.5
"""A neighbor matches with at least this cosine, and at least this share of the nearest document's cosine."""
KEYWORD_NEAR, KEYWORD_SHARE = 0.35, 0.9
"""The same for keywords, if some document holds all of them, or none holds any: what is merely related is no match."""
NO_NEIGHBOR, EVERY_NEIGHBOR = 2.0, -2.0
MOST_KEYWORDS = 4
"""Most words of a keyword query, which has no stop words."""
HeldWords = Literal["all", "some", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The matches of one search."""

    rows: Rows  # int64 [m], ascending, those that a filter allows
    words: HeldWords  # whether they hold all words, some of them, or match by similarity alone
    similar: int  # number of matches that hold too few words, and are near
    bound: float  # least cosine of such a match
    is_whole: bool = True  # whether these are all matches; remote words tell only of candidates

    def holds(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of some rows match, bool [x]."""
        return are_among(rows, self.rows) if len(self.rows) else np.zeros(len(rows), np.bool_)


def near_matches(ranked: RankedDocuments, most: int) -> Matches:
    """The matches of a search for at most so many candidates by similarity alone; if all match, there may be others."""
    nearest = float(ranked.scores[0]) if len(ranked.scores) else 0.0
    bound = max(NEAR, NEAREST_SHARE * nearest)
    is_whole = len(ranked.rows) < most or bool(ranked.scores[-1] < bound)
    return _joined((ranked.rows[:0], "none"), (ranked.scores, ranked.rows), bound, is_whole=is_whole)


@dataclass(frozen=True, slots=True)
class WordMatching:
    """What a query's words ask of a match."""

    words: Sequence[str]  # of the query, as preprocessing yields them
    idf: Callable[[str], float]  # weight of a word, >= 0
    match: Match
    others: Others  # what else counts as a word

    def everywhere(
        self,
        impacts: ImpactsView,
        near: Ranking,  # nearest candidates, as a search with the filter found them
        nearest: float,  # cosine of the nearest document, regardless of filters
        allowed: RowMask | None,  # documents that may be found; None: all
    ) -> Matches:
        """The matches among all documents."""
        lists = {word: _rows_of(impacts, word, self.others) for word in self._content()}
        if allowed is not None:
            lists = {word: rows[allowed.mask[rows]] for word, rows in lists.items()}
        rows, words = self._by_words(lists, impacts, len(impacts))
        return _joined((rows, words), near, self._bound(words, lists, nearest))

    def among(
        self, impacts: ImpactsView, pool: Rows, near: Ranking, nearest: float, *, is_whole: bool
    ) -> Matches:
        """The matches among some documents, int64 [p] ascending; arguments as for `everywhere`."""
        content = self._content()
        holds = held_words(impacts, content, pool, self.others)
        lists = {word: np.flatnonzero(holds[:, at]) for at, word in enumerate(content)}
        places, words = self._by_words(lists, impacts, len(pool))
        return _joined((pool[places], words), near, self._bound(words, lists, nearest), is_whole=is_whole)

    def _content(self) -> list[str]:
        return list(dict.fromkeys(searched_words(self.words)))

    def _by_words(
        self, lists: Mapping[str, Rows], impacts: ImpactsView, documents: int
    ) -> tuple[Rows, HeldWords]:
        """The documents that match through words, and how many words they hold.

        A word that no document of the index holds, such as a name or a typo, hides none that hold the known ones.
        """
        if not lists:
            return np.empty(0, np.int64), "none"
        if self.match != "any":
            rows = rows_in_all(list(lists.values()), documents)
            if len(rows) or self.match == "all":
                return rows, "all" if len(rows) else "none"
            known = [word for word in lists if impacts.holds(word) or word in self.others]
            rows = _covered(lists, {word: self.idf(word) for word in known}, documents)
        else:
            rows = _union(list(lists.values()), documents)
        return rows, "some" if len(rows) else "none"

    def _bound(self, words: HeldWords, lists: Mapping[str, Rows], nearest: float) -> float:
        """The least cosine of a match that holds too few words."""
        if self.match != "auto":
            return NO_NEIGHBOR if self.match == "all" else EVERY_NEIGHBOR
        is_keyword = len(lists) <= MOST_KEYWORDS and STOP_WORDS.isdisjoint(self.words)
        if is_keyword and words == "all":
            return max(KEYWORD_NEAR, KEYWORD_SHARE * nearest)
        is_unknown = not any(map(len, lists.values()))
        return max(KEYWORD_NEAR if is_keyword and is_unknown else NEAR, NEAREST_SHARE * nearest)


def _joined(
    by_words: tuple[Rows, HeldWords], near: Ranking, bound: float, *, is_whole: bool = True
) -> Matches:
    rows, words = by_words
    similar = np.sort(near[1][near[0] >= bound])
    if len(rows) and len(similar):
        similar = similar[~are_among(similar, rows)]
    every = np.insert(rows, np.searchsorted(rows, similar), similar)
    return Matches(every, words, len(similar), bound, is_whole)


def _rows_of(impacts: ImpactsView, word: str, others: Others) -> Rows:
    """The documents that hold a word, or what else counts as it."""
    lists = [impacts.rows_with(word)]
    for other in others.get(word, ()):
        lists.append(rows_in_all([impacts.rows_with(each) for each in other], len(impacts)))
    return lists[0] if len(lists) == 1 else _union(lists, len(impacts))


def _union(lists: Sequence[Rows], documents: int) -> Rows:
    mask = np.zeros(documents, np.bool_)
    for rows in lists:
        mask[rows] = True
    return np.flatnonzero(mask)


def _covered(lists: Mapping[str, Rows], idf: Mapping[str, float], documents: int) -> Rows:
    """The documents that hold at least `SOME` of the words by idf.

    The words with the longest lists are only looked up, as long as their idf is less than needed: a document that holds enough also holds
    another word.
    """
    needed = SOME * sum(idf.values()) - 1e-9
    spare = needed
    looked_up, visited = [], []
    for word in sorted(idf, key=lambda word: -len(lists[word])):
        if idf[word] < spare:
            spare -= idf[word]
            looked_up.append(word)
        else:
            visited.append(word)
    rows = _union([lists[word] for word in visited], documents)
    shares = np.zeros(len(rows))
    for word in (*visited, *looked_up):
        shares[are_among(rows, lists[word], documents)] += idf[word]
    return rows[shares >= needed]
