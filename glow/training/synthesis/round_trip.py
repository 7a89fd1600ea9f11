"""Round-trip consistency: a synthetic query is kept if searching for it finds the document that it was made from.

The corpus is searched by vectors and by BM25, fused by reciprocal ranks. What fails is mostly too general (`See
also`, `Introduction`) or says something that its document is not about.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from glow.evaluation import FusedRetriever, LexicalRetriever
from glow.records import Document, Query
from glow.schema import FieldSchema
from glow.training.encode import EncodedCorpus, Source

__all__ = ["RoundTrip"]

CANDIDATES = 50
"""Hits that are fused: a document that one retriever has first counts even where the other has it far down."""
BLOCK_QUERIES = 1024


class RoundTrip:
    """A corpus to search with synthetic queries.

    Args:
        source: the model or checkpoint.
        documents: the corpus.
        schema: names the text fields that BM25 searches.
        progress: told how many documents are encoded.
    """

    def __init__(
        self,
        source: Source,
        documents: Sequence[Document],
        schema: FieldSchema,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        names = [spec.name for spec in schema.fields if spec.kind == "text"]
        lexical = LexicalRetriever(documents, names)
        self._retriever = FusedRetriever([EncodedCorpus(source, documents, progress), lexical])

    def consistent(self, texts: Sequence[str], document_ids: Sequence[str], rank: int) -> NDArray[np.bool_]:
        """Which queries find their document.

        Args:
            texts: queries.
            document_ids: of the document that each was made from.
            rank: the last rank that counts as found, from 1.

        Returns:
            bool [queries].
        """
        is_consistent = np.zeros(len(texts), np.bool_)
        for start in range(0, len(texts), BLOCK_QUERIES):
            queries = [Query(str(i), texts[i]) for i in range(start, min(start + BLOCK_QUERIES, len(texts)))]
            run = self._retriever.search(queries, max(CANDIDATES, rank))
            for query in queries:
                hits = run[query.id][:rank]
                is_consistent[int(query.id)] = document_ids[int(query.id)] in {
                    hit.document_id for hit in hits
                }
        return is_consistent
