"""Suggestions as you type: phrases that the query may become, and titles of documents that hold its words."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glow.index import Index, RowMask
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.search.query import prefix_of
from glow.text import searched_words

TITLE = "title"
LONGEST_TITLE = 80
"""Characters of a text that stands for a title."""
MOST_LOOKED_AT, MOST_CONFINED = 128, 256
"""Most completions that are looked for beside the other words; among some documents of the index, others are none."""
MOST_ENDS = 8
"""Most completions whose documents are searched for titles."""
Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a query may become."""

    text: str
    kind: Literal["title", "phrase"]
    id: str | None = None  # of the document with the title


def suggest(
    index: Index,  # with a lexical component
    text: str,  # as far as it is typed
    k: int,
    allowed: RowMask | None = None,  # the documents whose words and titles may be shown; None: all
    check: Check = lambda: None,  # what it raises ends the work
) -> list[Suggestion]:
    """At most k suggestions, phrases first; titles get at least half of the places if there are as many."""
    impacts, pieces = index[POSTINGS], index.preprocessor.pieces
    started = prefix_of(index, text, MOST_LOOKED_AT if allowed is None else MOST_CONFINED)
    head = text if started is None else text.removesuffix(started.typed)
    words, ends = list(dict.fromkeys(searched_words(pieces.words(head)))), list[str]()
    if started is not None:
        ends = [*([started.word] if started.is_known else []), *started.completions]
    if impacts.is_remote:
        return [] if words or allowed is not None else _phrases(head, ends[:k])
    mask = _holders(index, words, allowed)
    if started is not None:
        holders = dict[str, NDArray[np.int64]]()
        for end in ends if words or allowed is not None else ends[:MOST_ENDS]:
            check()
            rows = impacts.rows_with(end)
            if len(rows := rows[mask[rows]]):
                holders[end] = rows
        ends = sorted(holders, key=lambda end: -len(holders[end]))[:MOST_ENDS]
        mask = np.zeros_like(mask)
        for end in ends:
            mask[holders[end]] = True
    _, rows = impacts.search([*words, *ends], 3 * k, RowMask(mask), index.order)
    check()
    titles = _titles(index, rows, k)
    if started is None:
        return titles
    # A document may hold the words elsewhere; a title that says nothing of them surprises.
    titles = [each for each in titles if _beginning(pieces.words, started.word, [each.text])]
    if allowed is not None:
        ends = _beginning(pieces.words, started.word, [each.text for each in titles])
    shown = {each.text.casefold() for each in titles}
    phrases = _phrases(head, [end for end in ends if end != started.word])
    phrases = [each for each in phrases if each.text.casefold() not in shown][: max(k // 2, k - len(titles))]
    return [*phrases, *titles[: k - len(phrases)]]


def _phrases(head: str, ends: Sequence[str]) -> list[Suggestion]:
    start = " ".join(head.split()) + (" " if head[-1:].isspace() and head.strip() else "")
    return [Suggestion(start + end, "phrase") for end in ends]


def _beginning(split: Callable[[str], list[str]], prefix: str, texts: Sequence[str]) -> list[str]:
    """The words of some texts that begin with a prefix, most frequent first."""
    counts = Counter(str(word) for text in texts for word in split(text) if word.startswith(prefix))
    return [word for word, _ in counts.most_common()]


def _holders(index: Index, words: Sequence[str], allowed: RowMask | None) -> NDArray[np.bool_]:
    """Whether each document may be shown and holds all words, bool [n]."""
    mask = np.ones(index.view.rows.documents, np.bool_) if allowed is None else allowed.mask.copy()
    for word in words:
        holds = np.zeros_like(mask)
        holds[index[POSTINGS].rows_with(word)] = True
        mask &= holds
    return mask


def _titles(index: Index, rows: NDArray[np.int64], k: int) -> list[Suggestion]:
    """The distinct titles of documents, in their order; of an index without titles, the beginnings of texts."""
    texts = [spec.name for spec in index.preprocessor.schema.fields if spec.kind == "text"]
    names = [TITLE] if TITLE in texts else texts[:1]
    titles: dict[str, Suggestion] = {}
    for start in range(0, len(rows), k):
        for document in index[STORED_FIELDS].rows(rows[start : start + k].tolist()):
            values = (value for name in names for value in document.fields.get(name, ()))
            title = " ".join(next(values, "").split())[:LONGEST_TITLE].strip()
            if title:
                titles.setdefault(title.casefold(), Suggestion(title, "title", document.id))
        if len(titles) >= k:
            break
    return list(titles.values())[:k]
