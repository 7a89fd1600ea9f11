"""A collection of Milvus whose entities are rows: read by row, or searched for one query.

k   hits        m   requested rows
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import MismatchError, QueryError, StoreError
from glow.index.columns import Columns, TypedColumn, ValueType
from glow.index.columns.filters import ID_FIELD, And, Exists, Expression, Not, OneOf, Or
from glow.index.milvus.connection import (
    BUILD_S,
    LOAD_S,
    ROW_FIELD,
    STORE_FILE,
    VECTOR_FIELD,
    CollectionHeader,
    Connection,
    StoreHeader,
    sampled_rows,
)
from glow.index.ranking import (
    DEFAULT_NPROBE,
    HNSW_EF_SEARCH,
    IndexKind,
    RowMask,
    SearchParams,
    best,
    list_count,
    products,
)

MAX_TERMS = 2_000
"""Most codes in one expression."""
EVERY, NONE = "row >= 0", "row < 0"
MAX_FIELDS = 60
"""Milvus allows 64 fields per collection."""


class FilterFields:
    """The fields of a collection that hold codes of columns, and filters on them in Milvus' language."""

    def __init__(
        self,
        columns: Columns,  # of the version
        names: Sequence[str] | None = None,  # of the parts, as a header has them; None: for a new collection
    ) -> None:
        self._columns = columns
        self._parts: dict[tuple[str, ValueType], TypedColumn] = {
            (field.name, kind): part
            for field in columns.fields.values()
            if all(each.offsets is None for each in field.parts.values())  # no lists
            for kind, part in field.parts.items()
        }
        most = sorted(self._parts, key=lambda part: (-self._parts[part].documents, part))
        cut = {field for field, _ in most[MAX_FIELDS:]}
        known = {f"{kind}:{field}": (field, kind) for field, kind in most[:MAX_FIELDS] if field not in cut}
        self.names = tuple(known if names is None else names)
        self._fields = {known[name]: f"f{place}" for place, name in enumerate(self.names) if name in known}

    def codes(self, documents: NDArray[np.int64]) -> dict[str, list[int]]:
        """The codes of some documents, by the name of the field."""
        return {name: self._parts[part].codes[documents].tolist() for part, name in self._fields.items()}

    def translate(self, expression: Expression) -> str | None:
        """The expression in Milvus' language; None if it has no equivalent, or only a very long one."""
        text = self._of(expression)
        return text if text is None or text.count(",") <= MAX_TERMS else None

    def _of(self, expression: Expression) -> str | None:
        if isinstance(expression, Not):
            inner = self._of(expression.term)
            return None if inner is None else f"not ({inner})"
        if isinstance(expression, And | Or):
            inners = [self._of(term) for term in expression.terms]
            if any(inner is None for inner in inners):
                return None
            word = " and " if isinstance(expression, And) else " or "
            empty = EVERY if isinstance(expression, And) else NONE
            return word.join(f"({inner})" for inner in inners) or empty
        if expression.field == ID_FIELD:
            return None  # rows of a collection may be passages: the mask knows which
        field = self._columns.fields.get(expression.field)
        if field is None:
            return NONE
        if not all((field.name, kind) in self._fields for kind in field.parts):
            return None
        if isinstance(expression, Exists):
            return " or ".join(f"{self._fields[field.name, kind]} > 0" for kind in field.parts)
        part = field.parts.get(expression.type)
        if part is None:
            return NONE
        name = self._fields[field.name, expression.type]
        if isinstance(expression, OneOf):
            codes = sorted({code for value in expression.values if (code := part.find(value))})
            return f"{name} in [{', '.join(map(str, codes))}]" if codes else NONE
        span = part.between(
            expression.low, expression.high, expression.includes_low, expression.includes_high
        )
        return f"{name} >= {span.start} and {name} < {span.stop}" if span else NONE


MAX_HITS = 16_384
"""Milvus' own limit."""
SPARE_HITS = 32
"""Additional hits to fetch: Milvus breaks ties arbitrarily, GLOW by id."""
SCORE_TOLERANCE = 1e-3
"""Relative limit of the difference between Milvus' scores and those of an index in files."""
NAMED_ROWS = 8_192
"""Most rows in one expression."""
READ_ROWS, READ_BYTES = 1_024, 32 << 20
"""Most rows of one response, and its most bytes; a message may have 64 MiB."""
CACHED_ROWS = 1_024
SEARCHED = "Eventually"  # the data were imported and flushed long before, and never change
Entity = Mapping[str, Any]
Found = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores float32 [k], descending, and rows int64 [k]."""


class Collection:
    """An open collection; safe to read and search from many threads."""

    def __init__(
        self,
        connection: Connection,  # to the server
        header: CollectionHeader,
        sizes: Mapping[str, int],  # field -> its most bytes, if they may be many
    ) -> None:
        self.connection, self.header, self._sizes = connection, header, sizes
        self.name, self.rows = header.collection, header.rows
        self._cached: OrderedDict[tuple[int, tuple[str, ...]], Entity] = OrderedDict()
        self._lock = threading.Lock()

    def require_bound(self, file: str, hashes: Mapping[str, str]) -> None:
        """Refuses the collection of another version by its name."""
        if not self.name.endswith(self.header.bound_to(hashes)):
            raise MismatchError(
                f"{file} names collection {self.name}, which belongs to another model, term statistics or set of vectors; "
                "build the index again"
            )

    def check(self, fields: Sequence[str]) -> None:
        """Loads the collection, and verifies by the number of rows and a sample of some fields that it is the version's own."""
        name, address = self.name, self.connection.address
        try:
            self.connection.call("load_collection", name, within_s=LOAD_S)
        except StoreError as error:
            if not error.is_gone:
                raise
            raise MismatchError(str(error)) from error
        counted = self.connection.call(
            "query", name, output_fields=["count(*)"], consistency_level="Strong", within_s=BUILD_S
        )
        count = int(counted[0]["count(*)"])
        if count != self.rows:
            raise MismatchError(
                f"{address}: collection {name} holds {count} rows, expected {self.rows}; build again"
            )
        sampled = self.read(sampled_rows(self.rows).tolist(), fields)
        if sample_of(sampled, fields) != self.header.sample:
            raise MismatchError(f"{address}: collection {name} holds other rows; build the index again")

    def ask(self, field: str, query: Any, limit: int, said: str, effort: Mapping[str, int]) -> Found:
        """One search by a vector field."""
        hits = self.connection.call(
            "search",
            self.name,
            [query],
            anns_field=field,
            filter=said,
            limit=limit,
            search_params={"metric_type": "IP", "params": dict(effort)},
            consistency_level=SEARCHED,
        )[0]
        rows = (int(hit["id"] if "id" in hit else hit[ROW_FIELD]) for hit in hits)  # the client has two names
        scores = np.fromiter((hit["distance"] for hit in hits), np.float32, len(hits))
        return scores, np.fromiter(rows, np.int64, len(hits))

    def read(self, rows: Sequence[int], fields: Sequence[str], *, caches: bool = False) -> list[Entity]:
        """Entities of rows, in their order; rows may repeat. `caches` keeps them for the next reads of the same search."""
        names, values = tuple(fields), dict[int, Entity]()
        with self._lock:
            for row in rows:
                if entity := self._cached.get((row, names)):
                    values[row] = entity
        missing, at_once = [row for row in dict.fromkeys(rows) if row not in values], self._at_once(names)
        read: dict[int, Entity] = {}
        for start in range(0, len(missing), at_once):
            answer = self.connection.call(
                "query",
                self.name,
                filter=f"{ROW_FIELD} in {missing[start : start + at_once]}",
                output_fields=[ROW_FIELD, *names],
                consistency_level=SEARCHED,
            )
            read |= {int(each[ROW_FIELD]): each for each in answer}
        for row in missing:
            if row not in read:
                raise MismatchError(
                    f"{self.connection.address}: collection {self.name} lacks row {row}; build again"
                )
        if caches:
            with self._lock:
                self._cached |= {(row, names): entity for row, entity in read.items()}
                while len(self._cached) > CACHED_ROWS:
                    self._cached.popitem(last=False)
        values |= read
        return [values[row] for row in rows]

    def scan(self, fields: Sequence[str], start: int = 0, stop: int | None = None) -> Iterator[list[Entity]]:
        """All entities of rows `start` to `stop`, in their order, in blocks."""
        stop = self.rows if stop is None else min(stop, self.rows)
        at_once = self._at_once(fields)
        for first in range(start, stop, at_once):
            yield self.read(range(first, min(first + at_once, stop)), fields)

    def _at_once(self, fields: Sequence[str]) -> int:
        """Rows of one response."""
        size = sum(self._sizes.get(field, 0) for field in fields)
        return int(np.clip(READ_BYTES // max(size, 1), 1, READ_ROWS))


def sample_of(entities: Sequence[Entity], fields: Sequence[str]) -> str:
    """SHA-256 of some fields of some entities."""
    values = [[entity[field] for field in fields] for entity in entities]
    text = json.dumps(values, sort_keys=True, default=lambda each: np.asarray(each).tolist())
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RowSearch:
    """Searches of a collection for one query."""

    collection: Collection
    field: str  # vector field that is searched
    query: Any
    filters: FilterFields | None  # translates filters; None: they are sent as rows
    # Number of hits -> parameters of an approximate search
    effort: Callable[[int], Mapping[str, int]] = lambda limit: {}
    # Scores rows that a search among them did not return; None: they do not match
    missing: Callable[[NDArray[np.int64]], NDArray[np.float32]] | None = None

    def nearest(self, k: int, allowed: RowMask | None) -> Found:
        """At least the k best allowed rows (None: of all), within the limits of an approximate search; k >= 1."""
        if allowed is None:
            return self._ask(k + SPARE_HITS, "")
        said = None
        if self.filters is not None and allowed.expression is not None:
            said = self.filters.translate(allowed.expression)
        if allowed.count <= NAMED_ROWS and (said is None or allowed.count <= k):
            return self.among(allowed.rows, k)
        fetched = min(k + SPARE_HITS, MAX_HITS)
        while True:
            scores, rows = self._ask(fetched, said or "")
            is_allowed = allowed.mask[rows]
            is_all = len(rows) < fetched
            if is_allowed.sum() >= k or is_all or fetched == MAX_HITS:
                break
            fetched = min(4 * fetched, MAX_HITS)
        # Too few among the best of all: search only the allowed rows.
        if is_allowed.sum() < k and said is None and not (is_all and self.missing is None):
            return self.among(allowed.rows, k)
        return scores[is_allowed], rows[is_allowed]

    def among(self, rows: NDArray[np.int64], k: int) -> Found:
        """At least the k best of given rows, int64 [m] ascending, in blocks."""
        parts = [(np.empty(0, np.float32), np.empty(0, np.int64))]
        for block in np.split(rows, range(0, len(rows), NAMED_ROWS))[1:]:
            most = min(len(block), k + SPARE_HITS)
            scores, hits = self._ask(most, f"{ROW_FIELD} in {block.tolist()}")
            parts.append((scores, hits))
            if self.missing is not None and len(hits) < most:  # a graph may miss some
                lacking = np.setdiff1d(block, hits)
                parts.append((self.missing(lacking), lacking))
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def score(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scores of given rows, float32 [m]; 0 for a row without a match."""
        distinct, places = np.unique(rows, return_inverse=True)
        own, hits = self.among(distinct, len(distinct))
        scores = np.zeros(len(distinct), np.float32)
        scores[np.searchsorted(distinct, hits)] = own
        return scores[places]

    def _ask(self, limit: int, said: str) -> Found:
        limit = min(limit, self.collection.rows, MAX_HITS)
        return self.collection.ask(self.field, self.query, limit, said, self.effort(limit))


class MilvusVectors:
    """An open collection; safe to search from many threads. Arguments and results as for `DenseIndex`."""

    device = "cpu"
    has_vectors = is_remote = True

    def __init__(
        self,
        connection: Connection,  # to the server
        header: StoreHeader,  # of the collection
        # Of the version, to translate filters; None: filters are sent as rows
        columns: Columns | None = None,
    ) -> None:
        self._collection = Collection(connection, header, {VECTOR_FIELD: 4 * header.dimensions})
        self.kind: IndexKind = header.index
        self.dimensions = header.dimensions
        self._fields = None if columns is None else FilterFields(columns, header.filters)

    def __len__(self) -> int:
        return self._collection.rows

    def check(self, hashes: Mapping[str, str]) -> None:
        """Loads the collection, and verifies that the version with these hashes was built with it."""
        self._collection.require_bound(STORE_FILE, hashes)
        self._collection.check((VECTOR_FIELD,))

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        params: SearchParams | None = None,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
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
            own, hits = best(*self._search(vector, params).nearest(k, allowed), k, order)
            scores[place, : len(hits)], rows[place, : len(hits)] = own, hits
        return scores, rows

    def _search(self, vector: NDArray[np.float32], params: SearchParams) -> RowSearch:
        def effort(limit: int) -> dict[str, int]:
            if self.kind == "flat":
                return {}
            if self.kind == "hnsw":
                return {"ef": max(params.ef_search or HNSW_EF_SEARCH, limit)}
            return {"nprobe": min(params.nprobe or DEFAULT_NPROBE, list_count(len(self)))}

        def missing(rows: NDArray[np.int64]) -> NDArray[np.float32]:
            return products(self.vectors(rows), vector)

        return RowSearch(self._collection, VECTOR_FIELD, vector, self._fields, effort, missing)

    def score(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The true scores of given rows, float32 [m]; as `DenseIndex.score`."""
        return self._search(vector, SearchParams()).score(rows)

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of rows, float32 [m, D]."""
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        for place, each in enumerate(self._collection.read(rows.tolist(), (VECTOR_FIELD,))):
            vectors[place] = each[VECTOR_FIELD]
        return vectors
