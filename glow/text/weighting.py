"""The options that turn words into weights, and their application to one query or document.

`Weighting` is stored with a model: the same options must serve training, export, builder and service.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.schema import FieldSchema, StrictModel
from glow.text.bm25 import (
    adjusted_tf,
    bm25f_weight,
    idf_bm25,
    idf_smooth,
    query_weight,
    released_weight,
)
from glow.text.terms import QUERY, TermTable
from glow.text.words import is_punctuation

__all__ = ["Weighting", "WordWeigher", "WordWeights"]

SPECIAL_IDF = 1.0
RELEASED_QUERY_LENGTH = 6.0
RELEASED_DOCUMENT_LENGTH = 25.0


class Weighting(StrictModel):
    """How words are weighted.

    Attributes:
        formula: `paper` (Eq. 6 for queries, Eq. 7-8 for documents), `released` (the released code's one
            formula for both), `idf` (idf alone, the paper's ablation) or `none` (all weights 1: plain BERT).
        idf: `smooth` or `bm25` (clipped at 0).
        query_k1, query_b: Eq. 6.
        document_k1: Eq. 8.
        saturate_specials: whether [CLS] and [SEP] go through the formula as a word of idf 1 that occurs
            once (the released code does so); otherwise their weight is 1.
        normalise: see `glow.text.bm25.normalise`.
    """

    formula: Literal["paper", "released", "idf", "none"] = "paper"
    idf: Literal["smooth", "bm25"] = "smooth"
    query_k1: float = Field(default=2.0, gt=0.0, allow_inf_nan=False)
    query_b: float = Field(default=0.75, ge=0.0, le=1.0)
    document_k1: float = Field(default=2.0, gt=0.0, allow_inf_nan=False)
    saturate_specials: bool = True
    normalise: Literal["none", "mean", "sqrt"] = "mean"


@dataclass(frozen=True, slots=True)
class WordWeights:
    """Weights of one query or document: word -> weight, and those of [CLS] and [SEP]; finite, >= 0."""

    words: Mapping[str, float]
    cls: float
    sep: float


class WordWeigher:
    """Weights the words of one query or document, given a term table.

    Args:
        weighting: the options.
        schema: fields with their BM25F factors.
        terms: document frequencies and average lengths.
    """

    def __init__(self, weighting: Weighting, schema: FieldSchema, terms: TermTable) -> None:
        self.weighting = weighting
        self.schema = schema
        self.terms = terms

    def idf(self, word: str) -> float:
        """idf of a word: 1 for punctuation, that of df = 1 for a word the table lacks; finite, >= 0."""
        if is_punctuation(word):
            return SPECIAL_IDF
        # A word the table lacks is at least as rare as the rarest it holds (seed-facts 5, row 8).
        df = float(max(self.terms.df(word), 1))
        documents = float(max(self.terms.documents, 1))
        idf = idf_smooth if self.weighting.idf == "smooth" else idf_bm25
        return float(idf(min(df, documents), documents))

    def query(self, words: Sequence[str], kept: Sequence[str]) -> WordWeights:
        """Weights of a query's words by Eq. 6, or as the options say.

        Args:
            words: all words of the query, before truncation.
            kept: the words to weight, among `words`.
        """
        options = self.weighting
        unique = list(dict.fromkeys(kept))
        if options.formula == "released":
            return self._released(Counter(words), unique, separators=1, average=RELEASED_QUERY_LENGTH)
        if options.formula != "paper":
            return self._plain(unique)
        length, average = float(len(words)), self.terms.average_length(QUERY)

        def weight(idf: NDArray[np.float64], tf: NDArray[np.float64]) -> NDArray[np.float64]:
            return query_weight(idf, tf, length, average, options.query_k1, options.query_b)

        counts = Counter(words)
        tf = np.array([counts[word] for word in unique], np.float64)
        special = self._special(float(weight(np.array(SPECIAL_IDF), np.array(1.0))))
        return WordWeights(_pair(unique, weight(self._idfs(unique), tf)), special, special)

    def document(self, fields: Mapping[str, Sequence[str]], kept: Sequence[str]) -> WordWeights:
        """Weights of a document's words by Eq. 7-8, or as the options say.

        A word has one weight, whichever fields hold it: Eq. 8 sums over fields.

        Args:
            fields: all words of each field, before truncation.
            kept: the words to weight, among those.
        """
        options = self.weighting
        unique = list(dict.fromkeys(kept))
        if options.formula == "released":
            counts = Counter(word for words in fields.values() for word in words)
            return self._released(counts, unique, len(self.schema.fields), RELEASED_DOCUMENT_LENGTH)
        if options.formula != "paper":
            return self._plain(unique)
        atf = np.zeros(len(unique))
        for spec in self.schema.fields:
            words = fields.get(spec.name, ())
            if words:
                counts = Counter(words)
                tf = np.array([counts[word] for word in unique], np.float64)
                average = self.terms.average_length(spec.name)
                atf += adjusted_tf(tf, float(len(words)), average, spec.weight, spec.length_norm)
        special = self._special(bm25f_weight(SPECIAL_IDF, 1.0, options.document_k1))
        weights = bm25f_weight(self._idfs(unique), atf, options.document_k1)
        return WordWeights(_pair(unique, weights), special, special)

    def _idfs(self, words: Sequence[str]) -> NDArray[np.float64]:
        return np.array([self.idf(word) for word in words], np.float64)

    def _special(self, saturated: float) -> float:
        return saturated if self.weighting.saturate_specials else SPECIAL_IDF

    def _plain(self, words: list[str]) -> WordWeights:
        if self.weighting.formula == "none":
            return WordWeights(dict.fromkeys(words, 1.0), 1.0, 1.0)
        return WordWeights({word: self.idf(word) for word in words}, SPECIAL_IDF, SPECIAL_IDF)

    def _released(
        self, counts: Counter[str], words: list[str], separators: int, average: float
    ) -> WordWeights:
        """The released code counts [CLS] (once) and every [SEP] (one a field) among the n words."""
        length = float(counts.total() + 1 + separators)
        tf = np.array([1, separators, *(counts[word] for word in words)], np.float64)
        idf = np.array([SPECIAL_IDF, SPECIAL_IDF, *(self.idf(word) for word in words)])
        weights = released_weight(idf, tf, length, average)
        cls, sep = self._special(float(weights[0])), self._special(float(weights[1]))
        return WordWeights(_pair(words, weights[2:]), cls, sep)


def _pair(words: list[str], weights: NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(words, weights.tolist(), strict=True))
