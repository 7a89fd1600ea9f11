"""The vectors of one version in a Milvus collection, searched like a `DenseIndex`.

n   queries     k   hits per query        m   some rows       D   dimensions
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError, QueryError, StoreError
from glow.index.columns import Columns
from glow.index.milvus.connection import BUILD_S, LOAD_S, Connection
from glow.index.milvus.expressions import FilterFields
from glow.index.milvus.format import ROW_FIELD, VECTOR_FIELD, StoreHeader, sample_hash, sampled_rows
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

MAX_HITS = 16_384
"""Milvus' own limit."""
SPARE_HITS = 32
"""Additional hits to fetch: Milvus breaks ties arbitrarily, GLOW by id."""
NAMED_ROWS = 8_192
"""Most rows in one expression."""
READ_ROWS = 1_024
CHECKED = "Strong"
SEARCHED = "Eventually"  # the data were imported and flushed long before, and never change


class MilvusVectors:
    """An open collection; safe to search from many threads. Arguments and results as for `DenseIndex`.

    Args:
        connection: to the server.
        header: of the collection.
        columns: of the version, to translate filters; None: filters are sent as rows.
    """

    device = "cpu"
    has_vectors = True

    def __init__(self, connection: Connection, header: StoreHeader, columns: Columns | None = None) -> None:
        self._connection = connection
        self._header = header
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
        header, name = self._header, self._header.collection
        if not name.endswith(header.bound_to(model, terms)):
            raise MismatchError(
                f"vectors.json names collection {name}, which belongs to another model, term statistics or set of vectors; "
                "build the index again"
            )
        try:
            self._connection.run(
                lambda client, within_s: client.load_collection(name, timeout=within_s), LOAD_S
            )
        except StoreError as error:
            if not error.is_gone:
                raise
            raise MismatchError(str(error)) from error
        counted = self._connection.run(
            lambda client, within_s: client.query(
                name, filter="", output_fields=["count(*)"], consistency_level=CHECKED, timeout=within_s
            ),
            BUILD_S,
        )
        found = int(counted[0]["count(*)"])
        if found != header.vectors:
            raise MismatchError(
                f"{header.address}: collection {name} holds {found} vectors, expected {header.vectors}; build again"
            )
        if sample_hash(self._read(sampled_rows(header.vectors))) != header.sample:
            raise MismatchError(
                f"{header.address}: collection {name} holds other vectors; build the index again"
            )

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
            found, hits = self._nearest(vector, k, params, allowed)
            ranks = hits if order is None else order[hits]
            best = np.lexsort((ranks, -found))[:k]
            scores[place, : len(best)], rows[place, : len(best)] = found[best], hits[best]
        return scores, rows

    def _nearest(
        self, vector: NDArray[np.float32], k: int, params: SearchParams, allowed: RowMask | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """At least the k nearest allowed vectors, within the limits of an approximate search."""
        if allowed is None:
            return self._ask(vector, k + SPARE_HITS, params, "")
        said = None
        if self._fields is not None and allowed.expression is not None:
            said = self._fields.translate(allowed.expression)
        if allowed.count <= NAMED_ROWS and (said is None or allowed.count <= k):
            return self._among(vector, allowed.rows, k, params)
        fetched = k + SPARE_HITS
        while True:
            scores, rows = self._ask(vector, fetched, params, said or "")
            kept = allowed.mask[rows]
            if kept.sum() >= k or len(rows) < fetched or fetched == MAX_HITS:
                break
            fetched = min(4 * fetched, MAX_HITS)
        if kept.sum() < k and said is None:  # too few among the nearest of all: search only the allowed rows
            return self._among(vector, allowed.rows, k, params)
        return scores[kept], rows[kept]

    def _among(
        self, vector: NDArray[np.float32], rows: NDArray[np.int64], k: int, params: SearchParams
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """At least the k nearest of given rows, int64 [m] ascending, in blocks."""
        parts = []
        for block in np.split(rows, range(NAMED_ROWS, len(rows), NAMED_ROWS)):
            wanted = min(len(block), k + SPARE_HITS)
            scores, found = self._ask(vector, wanted, params, f"{ROW_FIELD} in {block.tolist()}")
            parts.append((scores, found))
            if len(found) < wanted:  # a graph may miss some
                missing = np.setdiff1d(block, found)
                parts.append((products(self._read(missing), vector), missing))
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _ask(
        self, vector: NDArray[np.float32], limit: int, params: SearchParams, said: str
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        limit = min(limit, len(self), MAX_HITS)
        effort: dict[str, int] = {}
        if self.kind == "hnsw":
            effort = {"ef": max(params.ef_search or HNSW_EF_SEARCH, limit)}
        elif self.kind != "flat":
            effort = {"nprobe": min(params.nprobe or DEFAULT_NPROBE, list_count(len(self)))}
        hits = self._connection.run(
            lambda client, within_s: client.search(
                self._header.collection,
                [vector],
                filter=said,
                limit=limit,
                search_params={"metric_type": "IP", "params": effort},
                consistency_level=SEARCHED,
                timeout=within_s,
            )
        )[0]
        rows = np.fromiter((_row_of(hit) for hit in hits), np.int64, len(hits))
        return np.fromiter((hit["distance"] for hit in hits), np.float32, len(hits)), rows

    def score(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The true scores of given rows, float32 [m]; as `DenseIndex.score`."""
        if not len(rows):
            return np.empty(0, np.float32)
        wanted, places = np.unique(rows, return_inverse=True)
        found, hits = self._among(vector, wanted, len(wanted), SearchParams())
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
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        for start in range(0, len(rows), READ_ROWS):
            block = rows[start : start + READ_ROWS]
            asked = self._query(np.unique(block).tolist())
            found = self._connection.run(asked)
            held = {int(each[ROW_FIELD]): np.asarray(each[VECTOR_FIELD], np.float32) for each in found}
            if missing := [row for row in block.tolist() if row not in held]:
                raise MismatchError(
                    f"{self._header.address}: collection {self._header.collection} lacks row {missing[0]}; build again"
                )
            vectors[start : start + len(block)] = [held[row] for row in block.tolist()]
        return vectors

    def _query(self, rows: list[int]) -> Callable[[Any, float], Any]:
        name = self._header.collection
        return lambda client, within_s: client.query(
            name,
            filter=f"{ROW_FIELD} in {rows}",
            output_fields=[ROW_FIELD, VECTOR_FIELD],
            consistency_level=SEARCHED,
            timeout=within_s,
        )


def _row_of(hit: Any) -> int:
    """A hit's primary key, under either of the client's names for it."""
    return int(hit["id"] if "id" in hit else hit[ROW_FIELD])
