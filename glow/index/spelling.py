"""Spelling: the words of the documents, found again by the texts with one letter less, and corrections of a query."""

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import ascii_lowercase
from typing import Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from rapidfuzz import process
from rapidfuzz.distance import OSA

from glow.errors import FormatError
from glow.index.component import BuildInputs, Component, ComponentOptions, Corpus, Rules
from glow.index.postings import POSTINGS, ImpactsView, SegmentImpacts, document_words
from glow.index.segment import MergeSource, Segment, Segments
from glow.options import StrictModel
from glow.storage import ABSENT, SortedStrings, largest_places, map_array, read_header
from glow.text import STOP_WORDS, TermTable, WordPieces, WordSpans, is_lexical


def forms(word: str) -> list[str]:
    """The word, and the word without each of its letters; each form once."""
    return list(dict.fromkeys([word, *(word[:at] + word[at + 1 :] for at in range(len(word)))]))


def key_of(form: str) -> int:
    """32-bit hash of a form; the distance of the words resolves collisions."""
    return crc32(form.encode("utf-8", "replace"))


SPELLING_FOLDER = "spelling"
SPELLING_HEADER = "spelling.json"
WORDS_FILE, OFFSETS_FILE = "words.bin", "offsets.npy"
DFS_FILE = "dfs.npy"
"""uint32 [n], document frequency of each word."""
KEYS_FILE = "keys.npy"
"""uint32 [f], ascending: the key of each form."""
PLACES_FILE = "places.npy"
"""uint32 [f], the word of each form."""
SPELLING_FILES = (SPELLING_HEADER, WORDS_FILE, OFFSETS_FILE, DFS_FILE, KEYS_FILE, PLACES_FILE)


class SpellingHeader(StrictModel):
    """`spelling.json`."""

    format: Literal[1] = 1
    words: int = Field(ge=0)
    forms: int = Field(ge=0)


MOST_LOOKED_AT = 256
"""Most words of one form to check: many may share a form of four letters."""
TWO_EDITS = 8
"""Letters of a word that may have two typos."""
MOST_FAR = 4
"""Most unknown words of a query that may have two typos: comparing takes milliseconds."""
SAME_LETTERS, MOST_COMPARED = 3, 20_000
"""First letters that a word shares with what is two edits away, and the most words to compare."""


class SpellingTable:
    """Words and their forms, memory-mapped; immutable and safe to read from many threads."""

    def __init__(
        self,
        words: SortedStrings,  # the words, sorted
        dfs: NDArray[np.uint32],  # uint32 [n], document frequency of each
        keys: NDArray[np.uint32],  # uint32 [f], ascending: keys of the words' forms
        places: NDArray[np.uint32],  # uint32 [f], the word of each form
    ) -> None:
        self._words, self._dfs, self._keys, self._places = words, dfs, keys, places

    def __len__(self) -> int:
        return len(self._words)

    def has(self, word: str) -> bool:
        """Whether any document of the collection has the word."""
        return self._words.find(word.encode("utf-8", "replace")) != ABSENT

    def items(self) -> Iterator[tuple[str, int]]:
        """Every word with its document frequency, in the order of the words' UTF-8 bytes."""
        for place, df in enumerate(self._dfs.tolist()):
            yield self._words.value(place), df

    def candidates(self, word: str) -> dict[str, int]:
        """The words one edit away, with their document frequencies."""
        keys = np.fromiter(map(key_of, forms(word)), np.uint32)
        starts = np.searchsorted(self._keys, keys, "left").tolist()
        stops = np.searchsorted(self._keys, keys, "right").tolist()
        places = {
            place
            for start, stop in zip(starts, stops, strict=True)
            for place in self._places[start : min(stop, start + MOST_LOOKED_AT)].tolist()
        }
        pairs = ((self._words.value(place), int(self._dfs[place])) for place in places)
        return {other: df for other, df in pairs if OSA.distance(word, other, score_cutoff=1) == 1}

    def two_edits_away(self, word: str) -> dict[str, int]:
        """Words two edits away with the same first letters, with their document frequencies; ends of the word are left out."""
        alike = self._words.starting(word[:SAME_LETTERS].encode())
        ends = self._words.ends[alike.start : alike.stop + 1]
        near = np.flatnonzero(abs(np.diff(ends) - len(word.encode())) <= 2)[:MOST_COMPARED] + alike.start
        others = [self._words.value(place) for place in near.tolist()]
        matches = process.extract(word, others, scorer=OSA.distance, score_cutoff=2, limit=None)
        return {other: int(self._dfs[near[at]]) for other, _, at in matches if other != word[: len(other)]}

    def starting(self, prefix: str, most: int) -> dict[str, int]:
        """The most frequent words that begin with a prefix, with their document frequencies."""
        return self._most_frequent([self._words.starting(prefix.encode())], most)

    def nearly_starting(self, prefix: str, most: int) -> dict[str, int]:
        """The same for the prefixes one edit away, with the same first letter; no word may begin with `prefix`."""
        within, ranges = range(len(self)), []
        for at in range(1, len(prefix) + 1):
            head, rest = prefix[:at], prefix[at:]
            within = self._words.starting(head.encode(), within)
            if not within:
                break
            tails = {letter + each for letter in ascii_lowercase for each in (rest, rest[1:])}
            tails |= {rest[1:], rest[1:2] + rest[:1] + rest[2:]}
            ranges += [self._words.starting((head + tail).encode(), within) for tail in tails]
        return self._most_frequent(ranges, most)

    def _most_frequent(self, ranges: Iterable[range], most: int) -> dict[str, int]:
        counts: dict[str, int] = {}
        for each in ranges:
            dfs = self._dfs[each.start : each.stop]
            for place in largest_places(dfs, most).tolist():
                counts[self._words.value(each.start + place)] = int(dfs[place])
        return dict(sorted(counts.items(), key=lambda item: -item[1])[:most])

    @classmethod
    def open(cls, folder: Path) -> "SpellingTable":
        """Maps the files that `build_spelling` wrote."""
        header = read_header(folder / SPELLING_HEADER, SpellingHeader)
        words = SortedStrings.open(folder / WORDS_FILE, folder / OFFSETS_FILE, header.words)
        dfs = map_array(folder / DFS_FILE, np.uint32, header.words)
        keys = map_array(folder / KEYS_FILE, np.uint32, header.forms)
        places = map_array(folder / PLACES_FILE, np.uint32, header.forms)
        if (places >= header.words).any():
            raise FormatError(
                f"{folder.name}/{PLACES_FILE} is damaged: it names a word beyond the {header.words}; rebuild the index"
            )
        return cls(words, dfs, keys, places)


SHORTEST_WORD, LONGEST_WORD = 4, 24
"""In letters: shorter words are one edit from too many others, longer ones are rarely language."""


def is_spelled(word: str) -> bool:
    """Whether typo correction covers a word: only letters, neither few nor very many, and no stop word."""
    return SHORTEST_WORD <= len(word) <= LONGEST_WORD and word.isalpha() and word not in STOP_WORDS


def build_spelling(
    folder: Path,
    # Each word once, in the order of its UTF-8 bytes, with its document frequency; words that typo correction
    # does not cover are left out
    words: Iterable[tuple[str, int]],
) -> SpellingHeader:
    """Writes the spelling table of a collection. Returns the written header."""
    folder.mkdir(parents=True, exist_ok=True)
    spelled: list[bytes] = []
    dfs, keys, places = array("I"), array("I"), array("I")
    for word, df in words:
        if not is_spelled(word):
            continue
        for form in forms(word):
            keys.append(key_of(form))
            places.append(len(spelled))
        spelled.append(word.encode())
        dfs.append(df)
    SortedStrings.pack(spelled).save(folder / WORDS_FILE, folder / OFFSETS_FILE)
    all_keys = np.array(keys, np.uint32)
    order = np.argsort(all_keys, kind="stable")
    np.save(folder / KEYS_FILE, all_keys[order], allow_pickle=False)
    np.save(folder / PLACES_FILE, np.array(places, np.uint32)[order], allow_pickle=False)
    np.save(folder / DFS_FILE, np.array(dfs, np.uint32), allow_pickle=False)
    header = SpellingHeader(words=len(spelled), forms=len(keys))
    header.save(folder / SPELLING_HEADER)
    return header


def merged_words(impacts: SegmentImpacts, tables: Iterable[SpellingTable]) -> Iterator[tuple[str, int]]:
    """The words of a merged index, for `build_spelling`.

    Without stemming, the merged index counts them. With stemming, those words of the tables stay whose stem it still has, with the
    sums of their document frequencies; words of deleted documents may stay until the next build.
    """
    if impacts.analyzer.name == "plain":
        yield from impacts.word_counts()
        return
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update(dict(table.items()))
    for word in sorted(counts, key=str.encode):
        if impacts.holds(word):
            yield word, counts[word]


def count_words(
    known: TermTable,  # statistics of the documents' words; they limit the memory
    documents: Iterable[Iterable[str]],
) -> Iterator[tuple[str, int]]:
    """Words that typo correction covers, with their document frequencies, for `build_spelling`."""
    words = [word for word, _ in known.items() if is_spelled(word)]
    counted, counts = frozenset(words), Counter[str]()
    for document in documents:
        counts.update(counted.intersection(document))
    for word in words:
        if counts[word]:
            yield word, counts[word]


CACHED_WORDS = 100_000
MOST_COMPLETED = 32
"""Most words that a prefix may stand for."""
ENDINGS = ("s", "es", "d", "ed", "ing")
MOST_CORRECTED = 8
"""Most unknown words of one query to correct, of four times as many; with more, they are not typos."""
_JOINTS = frozenset("._/\\@#:=$`<>-~^*+|&%'0123456789")
"""A word next to these is part of a name, a number, a path or code."""
_CODE = re.compile(r"(?<!\w)[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*(?!\w)")
"""What may be a part number, a version or a standard: a word, or several with hyphens between; if it has digits."""
_RUNS = re.compile("[a-z]+|[0-9]+")
MOST_RUNS = 4
"""Most runs of letters or digits of such a word; with more, it is a hash, whose runs are in any text."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A query after correction, or with the hyphens that documents write."""

    text: str  # with its words corrected; unchanged without corrections
    words: dict[str, str]  # unknown word -> its correction


class Speller:
    """Checks and corrects words with one index version; safe to use from many threads."""

    def __init__(
        self,
        pieces: WordPieces,  # splits text into words
        terms: TermTable,  # the index's term statistics, of the words of all fields
        tables: Sequence[SpellingTable],  # of the version's segments
        # Its lexical index, which may know other forms of a word by its stem; None: it has none
        impacts: ImpactsView | None = None,
    ) -> None:
        self._spans, self._pieces = WordSpans(pieces), pieces
        self._tables = tuple(tables)
        self._impacts = impacts

        # A cached method would keep the mapped files in a reference cycle, which only the collector frees.
        def search(word: str) -> bool:
            if terms.df(word) > 0 or any(table.has(word) for table in tables):
                return True
            # Words of the lexical index alone; the tables have those that typo correction covers.
            return impacts is not None and not is_spelled(word) and impacts.holds(word)

        self._search = search
        self._cached = lru_cache(maxsize=CACHED_WORDS)(search)

    def knows(self, word: str) -> bool:
        """Whether any document has a word, or another form of it if the index has stems."""
        is_known = self._cached(word) if len(word) <= LONGEST_WORD else self._search(word)
        return is_known or self._is_form(word)

    def completions(self, prefix: str, most: int = MOST_COMPLETED) -> tuple[str, ...]:
        """The words that a prefix may stand for, most frequent first, each with a stem of its own.

        For a prefix of at least four letters without any: those of prefixes one edit away.
        """
        counts: Counter[str] = Counter()
        for table in self._tables:
            counts.update(table.starting(prefix, most))
        # The other words of the documents, such as numbers and short ones, are terms of the lexical index.
        is_plain = self._impacts is None or self._impacts.analyzer.name == "plain"
        terms = {} if self._impacts is None else self._impacts.starting(prefix, 4 * most)
        others = {word: df for word, df in terms.items() if not is_spelled(word) and is_lexical(word)}
        counts.update(others if is_plain else {word: others[word] for word in others if word[-1] != "."})
        if not counts and len(prefix) >= SHORTEST_WORD and prefix.isalpha():
            for table in self._tables:
                counts.update(table.nearly_starting(prefix, most))
        term = str if self._impacts is None else self._impacts.analyzer.term
        by_term: dict[str, str] = {}
        for word in sorted(counts, key=lambda word: (-counts[word], word)):
            by_term.setdefault(term(word), word)
        return tuple(by_term.values())[:most]

    def suspects(self, words: Sequence[str]) -> bool:
        """Whether any word of a query may be a typo: correction covers it, and no document has it."""
        cached = self._cached
        return any(len(word) <= LONGEST_WORD and not cached(word) and word.isalnum() for word in words)

    def correct(self, text: str) -> Correction:
        """The query with its typos corrected if the index is clear; names, numbers, code and short words do not change.

        `zz1033` becomes `zz-1033`, and the reverse, if documents have only that spelling.
        """
        if not self.suspects(self._spans.pieces.whole_words(text)):
            return Correction(text, {})
        words: dict[str, str] = {}
        text = _CODE.sub(lambda code: self._respelled(code[0], words), text)
        parts, end, tried = [], 0, set[str]()
        for span in self._spans.of_text(text):
            written = text[span.start : span.end]
            if not is_spelled(span.word) or _is_name(text, span.start, span.end, written):
                continue
            if span.word not in words:
                if (
                    span.word in tried
                    or max(len(words), len(tried) // 4) == MOST_CORRECTED
                    or self._cached(span.word)
                ):
                    continue
                tried.add(span.word)
                meant = None if self._is_form(span.word) else self._meant(span.word, len(tried) <= MOST_FAR)
                if meant is None:
                    continue
                words[span.word] = meant
            parts += [text[end : span.start], words[span.word]]
            end = span.end
        return Correction("".join([*parts, text[end:]]), words)

    def _respelled(self, code: str, words: dict[str, str]) -> str:
        """A code without hyphens, or with one between each two runs, if no document has it otherwise; notes it in `words`."""
        written, runs = code.lower(), _RUNS.findall(code.lower())
        holds = self._cached if self._impacts is None else self._impacts.holds
        is_code = (
            1 < len(runs) <= MOST_RUNS
            and len(code) <= LONGEST_WORD
            and not written.replace("-", "").isalpha()
        )
        if not is_code or len(words) == MOST_CORRECTED or all(map(holds, written.split("-"))):
            return code
        joined = "".join(runs)
        other = joined if holds(joined) else "-".join(runs) if all(map(holds, runs)) else written
        if other == written:
            return code
        words[written] = other
        return other

    def _meant(self, word: str, may_be_far: bool) -> str | None:
        """The most likely of the words one edit away, or two if none is and the word is long; None if there is none.

        A word of the language stays, unless what is meant is a more frequent one.
        """
        place = self._place(word)
        others = self._near(word, SpellingTable.candidates)
        if may_be_far and not others and len(word) >= TWO_EDITS and place is None:
            others = self._near(word, SpellingTable.two_edits_away)
        if place is not None:
            others = {other: df for other, df in others.items() if (self._place(other) or place) < place}
        return max(others, key=lambda other: (_likelihood(word, other, others[other]), other), default=None)

    def _near(self, word: str, find: Callable[[SpellingTable, str], dict[str, int]]) -> dict[str, int]:
        """What each table finds for a word, with the sums of the document frequencies."""
        dfs: dict[str, int] = {}
        for table in self._tables:
            for other, df in find(table, word).items():
                dfs[other] = dfs.get(other, 0) + df
        return dfs

    def _place(self, word: str) -> int | None:
        """The place of a word in the encoder's vocabulary, which has the frequent ones first; None: it is not whole there."""
        ids = self._pieces.pieces(word)
        return ids[0] if len(ids) == 1 else None

    def _is_form(self, word: str) -> bool:
        """Whether an unknown word is another form of a known one, in an index with their stem.

        A stem alone is not enough: "several" has the stem of "sever", and "filled" that of "fille".
        """
        if self._impacts is None or not self._impacts.holds(word):
            return False
        others = [word.removesuffix(ending) for ending in ENDINGS if word.endswith(ending)]
        term = self._impacts.analyzer.term
        return any(self._cached(other) and term(other) == term(word) for other in [*others, f"{word}s"])


def _is_name(text: str, start: int, end: int, written: str) -> bool:
    """Whether a word is written like names and code: joined to something, or with capitals inside."""
    before, after = text[start - 1 : start], text[end : end + 1]
    is_joined = before in _JOINTS if before else False
    if after in _JOINTS and after:
        is_joined = is_joined or text[end + 1 : end + 2].strip() != ""
    return is_joined or not (written.islower() or written.isupper() or written[1:].islower())


def _likelihood(word: str, other: str, df: int) -> float:
    """Likelihood that a typo turned one word into the other: from the word's frequency and the kind of typo.

    The first letter is rarely wrong; swapped letters are likely, because no letter is lost.
    """
    score = math.log1p(df)
    if word[0] != other[0]:
        score -= FIRST_LETTER
    if sorted(word) == sorted(other):
        score += SWAPPED
    return score


FIRST_LETTER, SWAPPED = 2.0, 1.0
"""In units of the logarithm of a document frequency."""


class Spelling(Component[SpellingTable, tuple[SpellingTable, ...]]):
    """Words of the lexical index before stemming, for typo correction."""

    name, label, stage = "spelling", "spelling", "spelling"
    paths, per, needs = (f"{SPELLING_FOLDER}/",), "index", ("postings",)

    def rules(self, options: ComponentOptions, inputs: BuildInputs) -> Rules | None:
        """Every index with a lexical component has it."""
        return Rules() if POSTINGS.name in inputs.rules else None

    def rules_of(self, segment: Segment, *, delta: bool) -> Rules | None:
        """As in the segment, without options. An old index without it gets it when it is replaced."""
        has_it = segment.has(f"{SPELLING_FOLDER}/{SPELLING_HEADER}")
        return Rules() if has_it or (not delta and POSTINGS.rules_of(segment, delta=delta)) else None

    def build(self, corpus: Corpus, rules: Rules) -> None:
        """As `Component`; an index with stems counts unstemmed words again, because no other component has them."""
        impacts = corpus.made[POSTINGS]
        words = (
            impacts.word_counts()
            if impacts.analyzer.name == "plain"
            else count_words(corpus.vocabulary, document_words(corpus, impacts.header.fields))
        )
        build_spelling(corpus.made.folder / SPELLING_FOLDER, words)

    def merge(self, sources: Sequence[MergeSource], rules: Rules, target: Segment) -> None:
        tables = (each.segment.get(self) for each in sources)
        words = merged_words(target[POSTINGS], (table for table in tables if table is not None))
        build_spelling(target.folder / SPELLING_FOLDER, words)

    def open(self, segment: Segment) -> SpellingTable | None:
        if not segment.has_any(self.paths):
            return None
        segment.require(*(f"{SPELLING_FOLDER}/{name}" for name in SPELLING_FILES))
        return SpellingTable.open(segment.path(SPELLING_FOLDER))

    def reader(self, segments: Segments[SpellingTable]) -> tuple[SpellingTable, ...]:
        """All tables: a word may be in any; readers add up the counts."""
        return segments.readers


SPELLING = Spelling()
