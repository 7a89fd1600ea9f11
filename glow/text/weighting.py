"""The options that turn words into weights, and their application to one query or document.

A model stores its `Weighting`: training, export, builder and service must use the same options.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

from pydantic import Field

from glow.options import StrictModel
from glow.schema import FieldSchema
from glow.text.bm25 import adjusted_tf, bm25f_weight, idf_bm25, idf_smooth, query_weight, released_weight
from glow.text.lexical import is_lexical
from glow.text.terms import MAX_WORD_CHARACTERS, QUERY, TermTable
from glow.text.words import Unit, is_punctuation

__all__ = ["Weighting", "WordWeigher", "WordWeights"]

SPECIAL_IDF = 1.0
RELEASED_QUERY_LENGTH = 6.0
RELEASED_DOCUMENT_LENGTH = 25.0
CACHED_WORDS = 100_000
# Larger factors change nothing useful, and products could leave the range of float32.
MAX_K1 = 1e6


class Weighting(StrictModel):
    """How words are weighted.

    Attributes:
        formula: `paper` (Eq. 6 for queries, Eq. 7-8 for documents), `released` (the released code's single
            formula for both), `idf` (only idf, the paper's ablation), `stop` (GLOW's control: 0 for stop words, punctuation,
            [CLS] and [SEP], otherwise 1) or `none` (all weights 1: plain BERT).
        idf: `smooth` or `bm25` (clipped at 0).
        query_k1, query_b: Eq. 6.
        document_k1: Eq. 8.
        saturate_specials: whether [CLS] and [SEP] go through the formula like a word of idf 1 that occurs
            once, as in the released code; otherwise their weight is 1.
        normalise: see `glow.text.bm25.normalise`.
        strength: see `glow.text.bm25.soften`.
        unit: the unit of counts and weights: whole `word`s (GLOW section 3.6) or each `piece`, a subword token (its ablation `tw`).
    """

    formula: Literal["paper", "released", "idf", "stop", "none"] = "paper"
    idf: Literal["smooth", "bm25"] = "smooth"
    query_k1: float = Field(default=2.0, gt=0.0, le=MAX_K1)
    query_b: float = Field(default=0.75, ge=0.0, le=1.0)
    document_k1: float = Field(default=2.0, gt=0.0, le=MAX_K1)
    saturate_specials: bool = True
    normalise: Literal["none", "mean", "sqrt"] = "mean"
    strength: float = Field(default=1.0, ge=0.0, le=1.0)
    unit: Unit = "word"


@dataclass(frozen=True, slots=True)
class WordWeights:
    """Weights of one query or document: word -> weight, and the weights of [CLS] and [SEP]; finite, >= 0."""

    words: Mapping[str, float]
    cls: float
    sep: float


class WordWeigher:
    """Computes the word weights of one query or document from term statistics.

    Args:
        weighting: the options.
        schema: fields with their BM25F factors.
        terms: document frequencies and average lengths.
    """

    def __init__(self, weighting: Weighting, schema: FieldSchema, terms: TermTable) -> None:
        self.weighting = weighting
        self.schema = schema
        self.terms = terms
        self._idf_of = partial(_idf_of, weighting, terms.documents)
        # A cached method would keep this and its statistics in a reference cycle, which only the collector frees.
        self._cached_idf = lru_cache(maxsize=CACHED_WORDS)(partial(_idf, weighting, terms))

    def idf(self, word: str) -> float:
        """The word's idf: 1 for punctuation, that of df = 1 for an unknown word; finite, >= 0."""
        return self._cached_idf(word) if len(word) <= MAX_WORD_CHARACTERS else self._idf_of(1)

    def query(self, words: Sequence[str], kept: Sequence[str]) -> WordWeights:
        """Weights of a query's words by Eq. 6, or by the formula of the options.

        Args:
            words: all words of the query, before truncation.
            kept: the words to weight, among `words`.
        """
        options = self.weighting
        if options.formula == "released":
            return self._released(Counter(words), kept, separators=1, average=RELEASED_QUERY_LENGTH)
        if options.formula != "paper":
            return self._plain(kept)
        counts, length, average = Counter(words), float(len(words)), self.terms.average_length(QUERY)

        def weight(idf: float, tf: float) -> float:
            return query_weight(idf, tf, length, average, options.query_k1, options.query_b)

        special = self._special(weight(SPECIAL_IDF, 1.0))
        return WordWeights(
            {word: weight(self.idf(word), counts[word]) for word in dict.fromkeys(kept)}, special, special
        )

    def document(self, fields: Mapping[str, Sequence[str]], kept: Sequence[str]) -> WordWeights:
        """Weights of a document's words by Eq. 7-8, or by the formula of the options.

        A word has the same weight in every field: Eq. 8 sums over fields.

        Args:
            fields: all words of each field, before truncation.
            kept: the words to weight, among those.
        """
        options = self.weighting
        if options.formula == "released":
            counts = Counter(word for words in fields.values() for word in words)
            return self._released(counts, kept, len(self.schema.fields), RELEASED_DOCUMENT_LENGTH)
        if options.formula != "paper":
            return self._plain(kept)
        k1 = options.document_k1
        special = self._special(bm25f_weight(SPECIAL_IDF, 1.0, k1))
        atf = self._adjusted_tfs(fields, kept)
        weights = {word: bm25f_weight(self.idf(word), value, k1) for word, value in atf.items()}
        return WordWeights(weights, special, special)

    def _adjusted_tfs(self, fields: Mapping[str, Sequence[str]], kept: Sequence[str]) -> dict[str, float]:
        """Each word's atf, summed over the fields; Eq. 7 is linear in tf, so its factor is computed once."""
        sums = dict.fromkeys(kept, 0.0)
        for spec in self.schema.fields:
            words = fields.get(spec.name, ())
            average = self.terms.average_length(spec.name)
            factor = (
                adjusted_tf(1.0, float(len(words)), average, spec.weight, spec.length_norm) if words else 0.0
            )
            for word, tf in Counter(words).items():
                if word in sums:
                    sums[word] += factor * tf
        return sums

    def _special(self, saturated: float) -> float:
        return saturated if self.weighting.saturate_specials else SPECIAL_IDF

    def _plain(self, words: Sequence[str]) -> WordWeights:
        if self.weighting.formula == "none":
            return WordWeights(dict.fromkeys(words, 1.0), 1.0, 1.0)
        if self.weighting.formula == "stop":
            return WordWeights({word: float(is_lexical(word)) for word in words}, 0.0, 0.0)
        return WordWeights({word: self.idf(word) for word in dict.fromkeys(words)}, SPECIAL_IDF, SPECIAL_IDF)

    def _released(
        self, counts: Counter[str], words: Sequence[str], separators: int, average: float
    ) -> WordWeights:
        """The released code counts [CLS] (once) and every [SEP] (one per field) among the n words."""
        length = float(counts.total() + 1 + separators)
        weights = {
            word: released_weight(self.idf(word), float(counts[word]), length, average)
            for word in dict.fromkeys(words)
        }
        cls = self._special(released_weight(SPECIAL_IDF, 1.0, length, average))
        sep = self._special(released_weight(SPECIAL_IDF, float(separators), length, average))
        return WordWeights(weights, cls, sep)


def _idf(weighting: Weighting, terms: TermTable, word: str) -> float:
    # An unknown word is at least as rare as the rarest known one (docs/papers.md, row 8).
    if is_punctuation(word):
        return SPECIAL_IDF
    return _idf_of(weighting, terms.documents, max(terms.df(word), 1))


def _idf_of(weighting: Weighting, documents: int, df: int) -> float:
    total = float(max(documents, 1))
    idf = idf_smooth if weighting.idf == "smooth" else idf_bm25
    return float(idf(min(float(df), total), total))
