"""Word weights: idf, BM25 for queries, BM25F for documents, and the released code's variant.

Sources: GLOW section 3.5, Eq. 6-8; BISON appendix B.2; the released code (docs/papers.md 1.3).
All functions are pure and accept scalars or numpy arrays.

    tf      occurrences of the word in the query or field
    l       length in words; avgl its average over the collection
    df, N   number of documents that hold the word; number of all documents
    atf     adjusted term frequency of Eq. 7, summed over fields
"""

from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "adjusted_tf", "bm25_impact", "bm25f_weight", "idf_bm25", "idf_lucene", "idf_smooth", "normalise",
    "query_weight", "released_weight", "soften",
]  # fmt: skip

Number = TypeVar("Number", float, NDArray[np.float64])
Normalisation = Literal["none", "mean", "sqrt"]


def idf_bm25(df: Number, documents: float, *, clip: bool = True) -> Number:
    """ln((N - df + 0.5) / (df + 0.5)), GLOW section 3.5.

    Departs from the paper: clipped at 0, because a word in more than half of the documents would get a
    negative weight; `clip=False` follows the paper.
    """
    idf: Number = np.log((documents - df + 0.5) / (df + 0.5))
    clipped: Number = np.maximum(idf, 0.0)
    return clipped if clip else idf


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


def bm25_impact(
    idf: NDArray[np.float64],
    tf: NDArray[np.float64],
    length: NDArray[np.float64],
    average: float,
    k1: float,
    b: float,
) -> NDArray[np.float64]:
    """Contribution of a term to a document's score: idf * tf / (tf + k1 * (1 - b + b * l / avgl)).

    Lucene's BM25 without its constant factor k1 + 1, which changes no ranking (Kamphuis et al. 2020, section 2).
    """
    return idf * tf / (tf + k1 * (1.0 - b + b * length / average))


def query_weight(idf: Number, tf: Number, length: float, average: float, k1: float, b: float) -> Number:
    """BM25 inside a query, Eq. 6: idf * tf / (tf + k1 * (1 - b + b * l_q / avl_q))."""
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


def normalise(weights: NDArray[np.float32], how: Normalisation) -> NDArray[np.float32]:
    """Rescales the weights of one sequence.

    Not in the papers: raw weights multiply the logits of a pre-trained softmax by up to 10 and saturate it.

    Args:
        weights: float32 [tokens], non-negative.
        how: `none` keeps them; `mean` divides by their mean, so that equal words give plain BERT;
            `sqrt` also takes the square root, which halves the spread on a log scale.

    Returns:
        float32 [tokens], non-negative and finite. If all are zero, they stay zero.
    """
    if how == "none":
        return weights
    total = float(np.add.reduce(weights, dtype=np.float64))
    if total <= 0.0:
        return weights
    scaled = np.divide(weights, total / weights.size, dtype=np.float64).astype(np.float32)
    return np.sqrt(scaled) if how == "sqrt" else scaled


def soften(weights: NDArray[np.float32], strength: float) -> NDArray[np.float32]:
    """Interpolates weights towards 1, the weight of plain attention: 1 + strength (w - 1). Not in the papers.

    Args:
        weights: float32 [tokens], non-negative.
        strength: in [0, 1]; 1 keeps the weights.

    Returns:
        float32 [tokens], non-negative and finite.
    """
    if strength == 1.0:
        return weights
    return (1.0 + strength * (weights - 1.0)).astype(np.float32)
