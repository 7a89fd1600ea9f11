"""Words and WordPieces: English, uncased, as BERT splits them.

A *word* is an output of BERT's basic tokenizer: lower-cased, without accents, split at white space, around every
punctuation mark and around every CJK character. A word's *pieces* are its WordPiece subword tokens. They are made word by
word, so each one belongs to a known word in spite of [UNK], accents, CJK or a literal "[SEP]" in the text. The
released code aligns strings greedily and loses its place there (docs/papers.md 1.4).
"""

import re
import string
import unicodedata
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from tokenizers import models, normalizers, pre_tokenizers

from glow.errors import FormatError

MAX_URL_CHARACTERS = 1024
# wordninja tries every cut; longer runs are ids and hashes, without words.
MAX_RUN_CHARACTERS = 48
# Hosts and directories recur in a corpus, and a cut costs ten times a look-up.
CACHED_RUNS = 50_000
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*://")
_SEPARATORS = re.compile(r"[\W_]+")
_RUNS = re.compile(r"[^\W_]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")


def url_words(url: str, *, keep_digits: bool = False) -> str:
    """The words of a URL as plain text, such as "docs python org library heap q" for "https://docs.python.org/3/library/heapq.html".

    The scheme is dropped, %-escapes are read as UTF-8. `keep_digits` keeps runs of digits as words of their own (Table 4).
    """
    plain = unquote(_SCHEME.sub("", url[:MAX_URL_CHARACTERS]))
    if not keep_digits:
        plain = _DIGITS.sub(" ", plain)
    words: list[str] = []
    for run in _SEPARATORS.split(plain):
        words.extend(_cut(run))
    return " ".join(words)


def url_runs(url: str, *, keep_digits: bool = False) -> Iterator[tuple[str, int]]:
    """Yields the words of a URL as it has them, with their starts, for highlighting; %-escapes are not decoded."""
    scheme = _SCHEME.match(url)
    for match in (_RUNS if keep_digits else _LETTERS).finditer(
        url, scheme.end() if scheme else 0, MAX_URL_CHARACTERS
    ):
        words, start = _cut(match[0]), match.start()
        for word in words if "".join(words) == match[0] else (match[0],):
            yield word, start
            start += len(word)


@lru_cache(maxsize=CACHED_RUNS)
def _cut(run: str) -> tuple[str, ...]:
    if not run or not run.isascii() or len(run) > MAX_RUN_CHARACTERS:
        return (run,) if run else ()
    import wordninja  # its word list takes 50 ms to load, which models without a url field avoid

    return tuple(wordninja.split(run))


Unit = Literal["word", "piece"]
VOCABULARY_FILE = "vocab.txt"
# Longer words are rare and may be a whole hostile query: caching them would waste memory.
CACHED_WORDS, CACHED_CHARACTERS = 100_000, 32
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# Equivalent to BERT's splitting of ASCII: controls vanish, every mark is a word. Five times the library's speed.
_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 127])
_ASCII_WORDS = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")


class BertWords:
    """Splits text into words, without a vocabulary."""

    _normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    _splitter = pre_tokenizers.BertPreTokenizer()

    def whole_words(self, text: str) -> list[str]:
        """Words of a text, as `words` yields them for the unit `word`."""
        if text.isascii():
            return _ascii_words(text)
        words: list[str] = []
        # No step of BERT's looks across a blank, so one accent does not slow down the whole text.
        for chunk in LONE_SURROGATE.sub(" ", text).split(" "):
            words += _ascii_words(chunk) if chunk.isascii() else self._unicode_words(chunk)
        return words

    def _unicode_words(self, text: str) -> list[str]:
        return [word for word, _ in self._splitter.pre_tokenize_str(self._normalizer.normalize_str(text))]


class WordPieces(BertWords):
    """Splits text into words, and words into WordPiece ids.

    The vocabulary has one subword token per line, whose id is its line number from 0. A `FormatError` says that it cannot be
    read or lacks one of [PAD], [UNK], [CLS] and [SEP]. `words` yields whole words, or with the unit `piece` each piece of them.
    """

    def __init__(self, vocabulary: Path, unit: Unit = "word") -> None:
        try:
            # Not splitlines(): a token may be one of the Unicode line separators.
            pieces = vocabulary.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"cannot read the vocabulary {vocabulary.name}: {error}") from error
        ids = {piece: number for number, piece in enumerate(pieces)}
        missing = [piece for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if piece not in ids]
        if missing:
            raise FormatError(f"{vocabulary.name} is not a BERT vocabulary: it lacks {', '.join(missing)}")
        self.vocabulary = vocabulary
        self.size = len(pieces)  # number of subword tokens
        self.pad_id, self.cls_id, self.sep_id = ids["[PAD]"], ids["[CLS]"], ids["[SEP]"]
        self.mask_id = ids.get("[MASK]", ids["[UNK]"])  # [UNK] in a vocabulary without masks
        self._model = models.WordPiece(vocab=ids, unk_token="[UNK]")  # noqa: S106 - a token, not a password
        # A cached method would keep this vocabulary in a reference cycle, which only the collector frees.
        self._pieces = partial(_pieces_of, self._model)
        self._cached_pieces = lru_cache(maxsize=CACHED_WORDS)(self._pieces)
        self._unit = unit
        self._names = pieces
        self._ids = ids

    def words(self, text: str) -> list[str]:
        """Words of a text in order; any Unicode string is accepted, lone surrogates count as white space."""
        if self._unit == "piece":
            return [self._names[number] for word in self.whole_words(text) for number in self._of_word(word)]
        return self.whole_words(text)

    def pieces(self, word: str) -> tuple[int, ...]:
        """Ids of a word's subword tokens, one [UNK] if the vocabulary cannot spell it; never empty."""
        return (self._ids[word],) if self._unit == "piece" else self._of_word(word)

    def _of_word(self, word: str) -> tuple[int, ...]:
        return self._cached_pieces(word) if len(word) <= CACHED_CHARACTERS else self._pieces(word)


def _pieces_of(model: models.WordPiece, word: str) -> tuple[int, ...]:
    return tuple(token.id for token in model.tokenize(word))


def _ascii_words(text: str) -> list[str]:
    return _ASCII_WORDS.findall(text.translate(_CONTROLS).lower())


def is_punctuation(word: str) -> bool:
    """Whether a word is one punctuation mark as BERT counts them: ASCII symbols, and Unicode category P."""
    if len(word) != 1:
        return False
    return word in string.punctuation if word.isascii() else unicodedata.category(word).startswith("P")
