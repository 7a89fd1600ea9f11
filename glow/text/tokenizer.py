"""Subword tokens of any tokenizer of the `tokenizers` library, for imported models.

Words stay the same as in all of GLOW (`BertWords.whole_words`): weights, statistics, spans and spelling depend on them. The
tokenizer reads the original text, with case and blanks; each of its tokens belongs to the word that contains it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

from glow.errors import FormatError
from glow.text.spans import WordSpans
from glow.text.words import LONE_SURROGATE, BertWords, WordPieces

TOKENIZER_FILE = "tokenizer.json"


class SpelledWord(str):
    """A word with its subword tokens, which depend on its place in a text; equal to the plain word."""

    __slots__ = ("ids",)
    ids: tuple[int, ...]  # empty if a token covers several words and belongs to the first of them

    def __new__(cls, word: str, ids: tuple[int, ...] = ()) -> "SpelledWord":
        spelled = super().__new__(cls, word)
        spelled.ids = ids
        return spelled

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles it as the plain word: its token ids are no longer needed."""
        return str, (str(self),)


class TokenizerPieces(WordPieces):
    """Splits text into words, and words into token ids of the `tokenizer.json` beside a vocabulary, which is for people.

    Raises a `FormatError` if the tokenizer cannot be read, or does not put exactly one token before and one after a text.
    """

    def __init__(self, vocabulary: Path) -> None:
        path = vocabulary.with_name(TOKENIZER_FILE)
        with _library(f"cannot read {path.name}"):
            self._tokenizer = Tokenizer.from_file(str(path))
            ends = self._tokenizer.encode("").ids
        padding = self._tokenizer.padding
        if len(ends) != 2 or padding is None:
            raise FormatError(
                f"{path.name} puts {len(ends)} tokens around an empty text and pads with "
                f"{'nothing' if padding is None else padding['pad_token']}, expected one before, one after, and a padding"
            )
        self.vocabulary = vocabulary
        self.cls_id, self.sep_id = ends
        self.pad_id = int(padding["pad_id"])
        masks = (self._tokenizer.token_to_id(name) for name in ("[MASK]", "<mask>"))
        self.mask_id = next((number for number in masks if number is not None), self.pad_id)
        self.size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # "</s>" in a text is text
        self._spans = WordSpans(BertWords())

    def words(self, text: str) -> list[str]:
        """Words of a text in order, each with its token ids."""
        spans = list(self._spans.of_text(text))
        if not spans:
            return []
        encoded = self._encode(text)
        ids: list[list[int]] = [[] for _ in spans]
        place = 0
        for number, (start, end) in zip(encoded.ids, encoded.offsets, strict=True):
            while place + 1 < len(spans) and spans[place].end <= start and spans[place + 1].start < end:
                place += 1
            ids[place].append(number)
        return [SpelledWord(span.word, tuple(own)) for span, own in zip(spans, ids, strict=True)]

    def pieces(self, word: str) -> tuple[int, ...]:
        """Token ids of a word: those of its place in the text, or of the word alone if it has no such place."""
        return word.ids if isinstance(word, SpelledWord) else tuple(self._encode(word).ids)

    def _encode(self, text: str) -> Encoding:
        with _library(f"{TOKENIZER_FILE} cannot spell a text"):
            return self._tokenizer.encode(LONE_SURROGATE.sub(" ", text), add_special_tokens=False)


@contextmanager
def _library(what: str) -> Iterator[None]:
    """Converts the library's failures, which have no type of their own and include panics, to a `FormatError`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise FormatError(f"{what}: {error}") from error
