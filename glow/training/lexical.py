"""The lexical part of hybrid scores for a batch of pairs, which a list-wise teacher adds to cosines.

A dense model can learn lexical matching in part (SPAR, https://arxiv.org/abs/2110.06918; LED,
https://arxiv.org/abs/2208.13661). The part is computed as in a search (`glow.search.hybrid`): BM25 on the scale of the
collection's largest impact, times the uncertainty of the dense ranking.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.index import DEFAULT_FUSION
from glow.index.postings import ImpactIndex, build_lexical
from glow.schema import FieldSchema
from glow.search import HEAD, uncertainty
from glow.text import WordPieces, lexical_words
from glow.training.data import Collection, PairBatch, count_terms
from glow.training.objective import Targets

__all__ = ["LexicalPart", "lexical_part"]

BLOCK_QUERIES = 1024


@dataclass(frozen=True, slots=True, eq=False)
class LexicalPart:
    """BM25 of one collection's documents for its queries.

    Attributes:
        index: impacts; rows are the collection's documents.
        words: words of each query.
        factors: float32 [queries], which convert impacts to units of a cosine.
    """

    index: ImpactIndex
    words: list[list[str]]
    factors: NDArray[np.float32]

    def scores(self, batch: PairBatch) -> NDArray[np.float32]:
        """The addition of hybrid search to the cosines of a batch, float32 [B, M]."""
        rows = batch.documents.astype(np.int64)
        found = [self.index.score(self.words[query], rows) for query in batch.queries]
        return np.stack(found) * self.factors[batch.queries, None]


def lexical_part(
    folder: Path, collection: Collection, schema: FieldSchema, pieces: WordPieces, targets: Targets
) -> LexicalPart:
    """Indexes a collection's words.

    Args:
        folder: directory to write the impacts to.
        collection: queries and documents.
        schema: names the text fields.
        pieces: splits words.
        targets: the teacher's vectors of both sides; their ranking gives each query's uncertainty.
    """
    table = count_terms([collection], schema, pieces)
    documents = (lexical_words(document, schema, pieces) for document in collection.documents)
    build_lexical(folder, documents, table, table)
    index = ImpactIndex.open(folder)
    weights = DEFAULT_FUSION.weights
    scale = weights.lexical / weights.dense / (index.largest or 1.0)
    words = [list(pieces.words(query)) for query in collection.queries]
    return LexicalPart(index, words, (_openness(targets) * scale).astype(np.float32))


def _openness(targets: Targets) -> NDArray[np.float32]:
    """Each query's `uncertainty` over the teacher's ranking of the whole collection, float32 [queries]."""
    if targets.queries is None or targets.documents is None:
        raise ValueError("a lexical teacher needs the teacher's vectors of queries and documents")
    queries, documents = targets.queries[:], targets.documents[:]
    found = np.empty(len(queries), np.float32)
    head = min(HEAD, len(documents))
    for start in range(0, len(queries), BLOCK_QUERIES):
        cosines = queries[start : start + BLOCK_QUERIES] @ documents.T
        best = -np.sort(-np.partition(cosines, -head, axis=1)[:, -head:], axis=1)
        found[start : start + len(best)] = [uncertainty(row) for row in best]
    return found
