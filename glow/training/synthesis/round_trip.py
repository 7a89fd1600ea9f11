"""Round-trip consistency: keeps a synthetic query if a search for it finds its source document.

The searches fuse vectors and BM25 by reciprocal ranks. Queries that fail are mostly too general (`See also`,
`Introduction`) or not about their document's subject.
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
"""Hits to fuse: a document that one retriever ranks first counts even if the other ranks it far down."""
BLOCK_QUERIES = 1024


class RoundTrip:
    """A corpus to search with synthetic queries.

    Args:
        source: the model or checkpoint.
        documents: the corpus.
        schema: names the text fields that BM25 searches.
        progress: called with the number of encoded documents.
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
            document_ids: id of each query's source document.
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
