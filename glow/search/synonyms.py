"""Synonyms: a file of words that count as others at query time, one group per line.

`sofa, couch, sofa bed` makes each count as the others; `tv => television, telly` only the first as those behind it.
Words are compared by the index's terms, so that `sofas` finds the synonyms of `sofa`.
"""

import logging
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from glow.errors import ConfigError
from glow.index import Index
from glow.text import searched_words

COMMENT, ARROW, COMMA = "#", "=>", ","
LONGEST_PHRASE = 8
"""Most words of one synonym."""
MOST_SYNONYMS = 64
"""Most synonyms of one query; later words of the query get none."""
MOST_BYTES = 16 << 20
CHECK_S = 1.0
"""Least time between two looks at the file, in seconds."""
_EXPECTED = (
    f"expected two or more words or phrases with {COMMA!r} between, or 'tv {ARROW} television', in UTF-8"
)
_logger = logging.getLogger(__name__)


class Rule(NamedTuple):
    """One line: each of `words` has the synonyms `others`, without itself."""

    words: tuple[str, ...]
    others: tuple[str, ...]


def parse_synonyms(data: bytes) -> tuple[Rule, ...]:
    """Reads the lines of a file of synonyms; a bad one raises an error with its number."""
    rules = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = line.decode().partition(COMMENT)[0].strip()
            if text:
                rules.append(_rule(text))
        except ValueError as error:
            fault = "no UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise ConfigError(f"synonyms, line {number}: found {fault}; {_EXPECTED}") from error
    return tuple(rules)


def _rule(text: str) -> Rule:
    sides = [tuple(each.strip() for each in side.split(COMMA)) for side in text.split(ARROW)]
    if len(sides) > 2 or len(sides[0] + sides[-1]) < 2 or (len(sides) == 1 and len(set(sides[0])) < 2):
        raise ValueError(f"{text!r:.80}")
    for phrase in (each for side in sides for each in side):
        if not any(map(str.isalnum, phrase)) or len(phrase.split()) > LONGEST_PHRASE:
            raise ValueError(f"{phrase!r:.80}")
    return Rule(sides[0], sides[-1])


Words = tuple[str, ...]
Table = dict[str, dict[Words, dict[str, Words]]]
"""First term of a phrase -> its terms -> its synonyms, and the words of each."""


class QuerySynonyms(NamedTuple):
    """The synonyms of a query."""

    names: dict[str, tuple[str, ...]]  # word or phrase of the query -> its synonyms, as the file has them
    others: dict[str, tuple[Words, ...]]  # word of the query -> the words of each synonym


class Synonyms:
    """The synonyms of a file; immutable, and safe to use from many threads."""

    def __init__(self, rules: Sequence[Rule] = (), name: str = "") -> None:
        self._rules, self._name = rules, name
        self._prepared: tuple[object, Table] = (None, {})

    def __repr__(self) -> str:
        return f"Synonyms({self._name})"  # a part of the keys of cached responses

    def __bool__(self) -> bool:
        return bool(self._rules)

    def prepare(self, index: Index) -> Table:
        """The synonyms in terms of an index; they are kept for the last one."""
        owner, table = self._prepared
        if owner is not index.preprocessor:
            term, words, table = index.analyzer.term, index.preprocessor.pieces.words, {}
            for rule in self._rules:
                others = {each: tuple(searched_words(words(each))) for each in rule.others}
                for phrase in rule.words:
                    terms = tuple(map(term, searched_words(words(phrase))))
                    if terms:
                        known = table.setdefault(terms[0], {}).setdefault(terms, {})
                        known |= {name: own for name, own in others.items() if own and name != phrase}
            self._prepared = (index.preprocessor, table)
        return table

    def find(self, index: Index, words: Sequence[str]) -> QuerySynonyms:
        """The synonyms of a query's words and phrases; those of a phrase count as each of its words."""
        table, words = self.prepare(index) if self else {}, searched_words(words)
        terms = tuple(map(index.analyzer.term, words)) if table else ()
        names: dict[str, dict[str, None]] = {}
        others: dict[str, dict[Words, None]] = {}
        left = MOST_SYNONYMS
        for at, first in enumerate(terms):
            for phrase, synonyms in table.get(first, {}).items():
                if terms[at : at + len(phrase)] != phrase:
                    continue
                chosen, own = list(synonyms.items())[:left], words[at : at + len(phrase)]
                left -= len(chosen)
                names.setdefault(" ".join(own), {}).update(dict.fromkeys(name for name, _ in chosen))
                for word in own:
                    others.setdefault(word, {}).update(dict.fromkeys(other for _, other in chosen))
        return QuerySynonyms(
            {word: tuple(each) for word, each in names.items() if each},
            {word: tuple(each) for word, each in others.items() if each},
        )


NO_SYNONYMS = Synonyms()


def read_synonyms(path: str) -> Synonyms:
    """Reads a file of synonyms; none for ""."""
    if not path:
        return NO_SYNONYMS
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"synonyms: cannot read {path}: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise ConfigError(f"synonyms: {path} has more than {MOST_BYTES} bytes; shorten it")
    return Synonyms(parse_synonyms(data), sha256(data).hexdigest())


class SynonymFile:
    """The newest synonyms of a file; a broken file keeps the old ones. Only one thread may call `refresh`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: object = None
        self._checked = -CHECK_S
        self.synonyms = NO_SYNONYMS
        self.is_refused = False  # whether the newest file is broken

    def refresh(self, index: Index) -> None:
        """Reads the file if it changed, at most once a second, and prepares its synonyms for an index."""
        now = time.monotonic()
        if not self._path or now - self._checked < CHECK_S:
            return
        self._checked = now
        try:
            status = Path(self._path).stat()
            seen: object = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError as error:
            seen = error.errno
        if seen != self._seen:
            self._seen = seen
            try:
                synonyms, self.is_refused = read_synonyms(self._path), False
            except ConfigError as error:
                self.is_refused = True
                _logger.warning("synonyms unchanged", extra={"fields": {"reason": str(error)}})
            else:
                synonyms.prepare(index)
                self.synonyms = synonyms
                _logger.info("synonyms", extra={"fields": {"file": self._path}})
        self.synonyms.prepare(index)
