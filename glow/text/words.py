"""Words and WordPieces: English, uncased, as BERT splits them.

A *word* is what BERT's basic tokeniser yields: lower-cased, without accents, cut at white space, around every
punctuation mark and around every CJK character. A word's *pieces* are its WordPieces. Pieces are made word by
word, so each one is known to belong to its word whatever happens around it ([UNK], accents, CJK, a literal
"[SEP]" in the text); the released code aligns strings greedily and loses its place there (seed-facts 1.4).
"""

import re
import unicodedata
from functools import lru_cache
from pathlib import Path

from tokenizers import models, normalizers, pre_tokenizers

from glow.errors import FormatError

__all__ = ["WordPieces", "is_punctuation"]

VOCABULARY_FILE = "vocab.txt"
CACHED_WORDS = 200_000
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class WordPieces:
    """Splits text into words, and words into WordPiece ids.

    Args:
        vocabulary: one piece a line, its line number (from 0) is its id; holds [PAD], [UNK], [CLS], [SEP].

    Attributes:
        cls_id, sep_id, pad_id: ids of the special pieces.
        size: number of pieces.

    Raises:
        FormatError: the file cannot be read or lacks a special piece.
    """

    def __init__(self, vocabulary: Path) -> None:
        try:
            pieces = vocabulary.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise FormatError(f"cannot read the vocabulary {vocabulary.name}: {error}") from error
        ids = {piece: number for number, piece in enumerate(pieces)}
        missing = [piece for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if piece not in ids]
        if missing:
            raise FormatError(f"{vocabulary.name} is no BERT vocabulary: it lacks {', '.join(missing)}")
        self.vocabulary = vocabulary
        self.size = len(pieces)
        self.pad_id, self.cls_id, self.sep_id = ids["[PAD]"], ids["[CLS]"], ids["[SEP]"]
        self._normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
        self._splitter = pre_tokenizers.BertPreTokenizer()
        self._model = models.WordPiece(vocab=ids, unk_token="[UNK]")  # noqa: S106 - a piece, no password
        self.pieces = lru_cache(maxsize=CACHED_WORDS)(self._pieces)

    def words(self, text: str) -> list[str]:
        """Words of a text in order; any Unicode string is accepted, lone surrogates count as white space."""
        if not text.isascii():
            text = _LONE_SURROGATE.sub(" ", text)
        return [word for word, _ in self._splitter.pre_tokenize_str(self._normalizer.normalize_str(text))]

    def _pieces(self, word: str) -> tuple[int, ...]:
        """Ids of a word's pieces, one [UNK] where the vocabulary cannot spell it; never empty."""
        return tuple(token.id for token in self._model.tokenize(word))


@lru_cache(maxsize=CACHED_WORDS)
def is_punctuation(word: str) -> bool:
    """Whether a word is one punctuation mark as BERT counts them: ASCII symbols, and Unicode category P."""
    if len(word) != 1:
        return False
    if word.isascii():
        return not word.isalnum()
    return unicodedata.category(word).startswith("P")
