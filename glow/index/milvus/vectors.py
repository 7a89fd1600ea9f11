"""The vectors of one version in a Milvus collection, searched like a `DenseIndex`.

n   queries     k   hits per query        m   some rows       D   dimensions
"""

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError, QueryError
from glow.index.columns import Columns
from glow.index.milvus.collection import MAX_HITS, SPARE_HITS, Collection, RowSearch
from glow.index.milvus.connection import Connection
from glow.index.milvus.expressions import FilterFields
from glow.index.milvus.format import STORE_FILE, VECTOR_FIELD, StoreHeader, sample_hash, sampled_rows
from glow.index.row_mask import RowMask
from glow.index.vector_search import (
    DEFAULT_NPROBE,
    HNSW_EF_SEARCH,
    IndexKind,
    SearchParams,
    VectorReader,
    list_count,
    products,
)

__all__ = ["MilvusVectors"]


class MilvusVectors:
    """An open collection; safe to search from many threads. Arguments and results as for `DenseIndex`.

    Args:
        connection: to the server.
        header: of the collection.
        columns: of the version, to translate filters; None: filters are sent as rows.
    """

    device = "cpu"
    has_vectors = is_remote = True

    def __init__(self, connection: Connection, header: StoreHeader, columns: Columns | None = None) -> None:
        self._header = header
        sizes = {VECTOR_FIELD: 4 * header.dimensions}
        self._collection = Collection(connection, header.collection, header.vectors, sizes)
        self.kind: IndexKind = header.index
        self.dimensions = header.dimensions
        self._fields = None if columns is None else FilterFields(columns, header.fields)

    def __len__(self) -> int:
        return self._header.vectors

    def check(self, model: str, terms: str) -> None:
        """Loads the collection, and verifies that the version was built with it.

        Args:
            model, terms: hashes of the version's manifest.

        Raises:
            MismatchError: if it is another, or has other vectors.
            StoreError: if the server does not respond.
        """
        header = self._header
        self._collection.require_bound(STORE_FILE, header.bound_to(model, terms))
        self._collection.check(lambda: sample_hash(self._read(sampled_rows(header.vectors))), header.sample)

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        params: SearchParams | None = None,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """As `DenseIndex.search`.

        Raises:
            QueryError: if `exact` is requested, except for a `flat` collection, or more hits than Milvus allows.
            StoreError: if the server does not respond, or the collection is missing.
            MismatchError: if the mask has another number of rows.
        """
        params = params or SearchParams()
        if params.exact and self.kind != "flat":
            raise QueryError("vectors in Milvus cannot be searched exactly, unless the index is flat")
        if allowed is not None and len(allowed) != len(self):
            raise MismatchError(f"found a mask of {len(allowed)} rows for an index of {len(self)} vectors")
        k = min(k, len(self) if allowed is None else allowed.count)
        if k > MAX_HITS - SPARE_HITS:
            raise QueryError(f"{k} hits were requested, and Milvus returns at most {MAX_HITS - SPARE_HITS}")
        scores = np.full((len(vectors), k), -np.inf, np.float32)
        rows = np.full((len(vectors), k), -1, np.int64)
        if k == 0:
            return scores, rows
        for place, vector in enumerate(vectors):
            found, hits = self._search(vector, params).nearest(k, allowed, self._said(allowed))
            ranks = hits if order is None else order[hits]
            best = np.lexsort((ranks, -found))[:k]
            scores[place, : len(best)], rows[place, : len(best)] = found[best], hits[best]
        return scores, rows

    def _search(self, vector: NDArray[np.float32], params: SearchParams) -> RowSearch:
        """Searches for one vector."""

        def ask(limit: int, said: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
            effort: dict[str, int] = {}
            if self.kind == "hnsw":
                effort = {"ef": max(params.ef_search or HNSW_EF_SEARCH, limit)}
            elif self.kind != "flat":
                effort = {"nprobe": min(params.nprobe or DEFAULT_NPROBE, list_count(len(self)))}
            return self._collection.ask(VECTOR_FIELD, vector, limit, said, effort)

        return RowSearch(ask, len(self), lambda missing: products(self._read(missing), vector))

    def _said(self, allowed: RowMask | None) -> str | None:
        """A filter in Milvus' language; None if it has no equivalent."""
        if self._fields is None or allowed is None or allowed.expression is None:
            return None
        return self._fields.translate(allowed.expression)

    def score(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The true scores of given rows, float32 [m]; as `DenseIndex.score`."""
        if not len(rows):
            return np.empty(0, np.float32)
        wanted, places = np.unique(rows, return_inverse=True)
        found, hits = self._search(vector, SearchParams()).among(wanted, len(wanted))
        scores = np.empty(len(wanted), np.float32)
        scores[np.searchsorted(wanted, hits)] = found
        return scores[places]

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of rows, float32 [m, D]."""
        return self._read(rows)

    def reader(self) -> VectorReader:
        """A function that reads stored vectors: rows int64 [m] -> float32 [m, D]."""
        return self._read

    @property
    def ranges(self) -> None:
        """None: vectors are stored uncompressed."""

    def _read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        found = self._collection.read(rows.tolist(), (VECTOR_FIELD,))
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        for place, each in enumerate(found):
            vectors[place] = each[VECTOR_FIELD]
        return vectors
