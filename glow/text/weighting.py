"""The options that turn words into weights, and their application to one query or document.

A model stores its `Weighting`: training, export, builder and service must use the same options.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glow.options import StrictModel
from glow.schema import FieldSchema
from glow.text.analyzer import is_lexical
from glow.text.terms import MAX_WORD_CHARACTERS, QUERY, TermTable
from glow.text.words import Unit, is_punctuation

Number = TypeVar("Number", float, NDArray[np.float64])


def idf_bm25(df: Number, documents: float) -> Number:
    """ln((N - df + 0.5) / (df + 0.5)), GLOW section 3.5.

    Departs from the paper: at least 0, because a word in more than half of the documents would get a negative weight.
    """
    idf: Number = np.maximum(np.log((documents - df + 0.5) / (df + 0.5)), 0.0)
    return idf


def idf_smooth(df: Number, documents: float) -> Number:
    """ln((1 + N) / (1 + df)) + 1, in [1, 1 + ln((1 + N) / 2)] for a seen word.

    scikit-learn's smooth idf: its bounds fit the MS MARCO table of BISON B.2 (1 and 15.3), and those of the paper's
    formula do not (docs/papers.md 1.3).
    """
    idf: Number = np.log((1.0 + documents) / (1.0 + df)) + 1.0
    return idf


def idf_lucene(df: Number, documents: float) -> Number:
    """ln(1 + (N - df + 0.5) / (df + 0.5)), above 0 for every word: Lucene's idf, for lexical scores.

    Kamphuis et al. 2020, "Which BM25 Do You Mean?", Table 1, Lucene (https://doi.org/10.1007/978-3-030-45442-5_4).
    """
    idf: Number = np.log(1.0 + (documents - df + 0.5) / (df + 0.5))
    return idf


def idf_of_words(words: Sequence[str], terms: TermTable) -> NDArray[np.float64]:
    """Lucene's idf of words, float64 [W], above 0; a word that no document has counts as one that a single document has."""
    documents = max(terms.documents, 1)
    dfs = np.fromiter((min(max(terms.df(word), 1), documents) for word in words), np.float64, len(words))
    return idf_lucene(dfs, float(documents))


def bm25_weight(idf: Number, tf: Number, length: Number, average: float, k1: float, b: float) -> Number:
    """BM25: idf * tf / (tf + k1 * (1 - b + b * l / avgl)). A word's weight in a query (Eq. 6), or a term's impact on a document.

    Lucene's BM25 without its constant factor k1 + 1, which changes no ranking (Kamphuis et al. 2020, section 2).
    """
    return idf * tf / (tf + k1 * (1.0 - b + b * length / average))


def adjusted_tf(tf: Number, length: float, average: float, weight: float, length_norm: float) -> Number:
    """The atf of one field, Eq. 7: fw * tf / (1 + fln * (fl / avl - 1))."""
    return weight * tf / (1.0 + length_norm * (length / average - 1.0))


def bm25f_weight(idf: Number, atf: Number, k1: float) -> Number:
    """BM25F of a document's word, Eq. 8: idf * atf / (k1 + atf), atf summed over the fields."""
    return idf * atf / (k1 + atf)


def released_weight(
    idf: Number, count: Number, length: float, average: float, k1: float = 0.25, b: float = 0.4
) -> Number:
    """The released code's weight, the same for queries and documents (no BM25F).

    With f = count / n: idf * f * (k1 + 1) / (f + k1 * (1 - b + b * n / avgdl)), where count and n run over all
    fields together with [CLS] and every [SEP], before truncation.
    """
    frequency = count / length
    return idf * frequency * (k1 + 1.0) / (frequency + k1 * (1.0 - b + b * length / average))


def normalise(weights: NDArray[np.float32], how: Literal["none", "mean", "sqrt"]) -> NDArray[np.float32]:
    """Rescales the weights of one sequence, float32 [tokens], >= 0 and finite; if all are zero, they stay zero.

    `mean` divides by their mean, so that equal words give plain BERT; `sqrt` also takes the square root, which halves the
    spread on a log scale. Not in the papers: raw weights multiply the logits of a pre-trained softmax by up to 10 and saturate it.
    """
    if how == "none":
        return weights
    total = float(np.add.reduce(weights, dtype=np.float64))
    if total <= 0.0:
        return weights
    scaled = np.divide(weights, total / weights.size, dtype=np.float64).astype(np.float32)
    return np.sqrt(scaled) if how == "sqrt" else scaled


def soften(weights: NDArray[np.float32], strength: float) -> NDArray[np.float32]:
    """Interpolates weights float32 [tokens] towards 1, plain attention: 1 + strength (w - 1), strength in [0, 1]. Not in the papers."""
    return weights if strength == 1.0 else (1.0 + strength * (weights - 1.0)).astype(np.float32)


SPECIAL_IDF = 1.0
RELEASED_QUERY_LENGTH = 6.0
RELEASED_DOCUMENT_LENGTH = 25.0
CACHED_WORDS = 100_000
# Larger factors change nothing useful, and products could leave the range of float32.
MAX_K1 = 1e6


class Weighting(StrictModel):
    """How words are weighted.

    `paper` is Eq. 6 for queries and Eq. 7-8 for documents, `released` the released code's formula for both, `idf` the paper's
    ablation, `none` plain BERT, with all weights 1. `stop` is GLOW's control: 0 for stop words, punctuation, [CLS] and [SEP], otherwise 1.
    """

    formula: Literal["paper", "released", "idf", "stop", "none"] = "paper"
    idf: Literal["smooth", "bm25"] = "smooth"
    query_k1: float = Field(default=2.0, gt=0.0, le=MAX_K1)  # Eq. 6
    query_b: float = Field(default=0.75, ge=0.0, le=1.0)  # Eq. 6
    document_k1: float = Field(default=2.0, gt=0.0, le=MAX_K1)  # Eq. 8
    # [CLS] and [SEP] go through the formula like a word of idf 1 that occurs once (released code); otherwise they weigh 1
    saturate_specials: bool = True
    normalise: Literal["none", "mean", "sqrt"] = "mean"  # as `normalise`
    strength: float = Field(default=1.0, ge=0.0, le=1.0)  # as `soften`
    unit: Unit = "word"  # GLOW section 3.6; or each `piece`, a subword token (its ablation `tw`)

    @property
    def reads_terms(self) -> bool:
        """Whether weights of documents depend on term statistics."""
        return self.formula not in ("none", "stop")


@dataclass(frozen=True, slots=True)
class WordWeights:
    """Weights of one query or document: word -> weight, and the weights of [CLS] and [SEP]; finite, >= 0."""

    words: Mapping[str, float]
    cls: float
    sep: float


class WordWeigher:
    """Computes the word weights of one query or document from term statistics and the schema's BM25F factors."""

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

    def query(self, text: Sequence[str], words: Sequence[str]) -> WordWeights:
        """Weights of some of a query's words by Eq. 6, or by the formula of the options; `text` has all, before truncation."""
        options = self.weighting
        if options.formula == "released":
            return self._released(Counter(text), words, separators=1, average=RELEASED_QUERY_LENGTH)
        if options.formula != "paper":
            return self._plain(words)
        counts, length, average = Counter(text), float(len(text)), self.terms.average_length(QUERY)

        def weight(idf: float, tf: float) -> float:
            return bm25_weight(idf, tf, length, average, options.query_k1, options.query_b)

        special = self._special(weight(SPECIAL_IDF, 1.0))
        return WordWeights(
            {word: weight(self.idf(word), counts[word]) for word in dict.fromkeys(words)}, special, special
        )

    def document(self, fields: Mapping[str, Sequence[str]], words: Sequence[str]) -> WordWeights:
        """Weights of some of a document's words by Eq. 7-8, or by the formula of the options; `fields` have all, before truncation.

        A word has the same weight in every field: Eq. 8 sums over fields.
        """
        options = self.weighting
        if options.formula == "released":
            counts = Counter(word for texts in fields.values() for word in texts)
            return self._released(counts, words, len(self.schema.fields), RELEASED_DOCUMENT_LENGTH)
        if options.formula != "paper":
            return self._plain(words)
        atf = dict.fromkeys(words, 0.0)  # summed over the fields
        for spec in self.schema.fields:
            if text := fields.get(spec.name, ()):
                average = self.terms.average_length(spec.name)
                # Eq. 7 is linear in tf, so its factor is computed once.
                factor = adjusted_tf(1.0, float(len(text)), average, spec.weight, spec.length_norm)
                for word, tf in Counter(text).items():
                    if word in atf:
                        atf[word] += factor * tf
        k1 = options.document_k1
        special = self._special(bm25f_weight(SPECIAL_IDF, 1.0, k1))
        weights = {word: bm25f_weight(self.idf(word), value, k1) for word, value in atf.items()}
        return WordWeights(weights, special, special)

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
