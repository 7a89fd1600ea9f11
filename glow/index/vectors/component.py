"""Vectors as a component of an index: in a FAISS file, or, for a base, in a collection of a Milvus server."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glow.errors import DeviceError, MismatchError
from glow.index.columns import COLUMNS, COLUMNS_FOLDER, Columns
from glow.index.component import BuildInputs, Component, Corpus, ImportRows, VectorRows
from glow.index.milvus import (
    STORE_FILE,
    FilterFields,
    ImportRange,
    MilvusVectors,
    collection_prefix,
    connect,
    read_store_header,
    require_version,
    write_vectors,
)
from glow.index.passages import PASSAGES, PASSAGES_FOLDER
from glow.index.ranking import IndexKind, Ranking, RowMask, SearchParams
from glow.index.segment import MergeSource, Rows, Segment, Segments
from glow.index.vectors.build import DEFAULT_MEMORY_MB, KeptVectors, VectorOptions, VectorRules, build_dense
from glow.index.vectors.index import DenseIndex
from glow.runtime import Device

DENSE_FILE = "vectors.faiss"
StoredVectors = DenseIndex | MilvusVectors


def open_dense(
    path: Path,
    columns: Columns | None,  # to translate filters for a server; None: filters are sent as rows
    device: Device,
) -> StoredVectors:
    """Opens the vectors of a segment; `MilvusVectors.check` checks a collection later."""
    if path.name != STORE_FILE:
        return DenseIndex.load(path, device)
    header = read_store_header(path.parent)
    return MilvusVectors(connect(header.address), header, columns)


class DenseView(Protocol):
    """Vectors for searches; `DenseIndex` describes each method."""

    @property
    def kind(self) -> IndexKind: ...
    @property
    def device(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def has_vectors(self) -> bool: ...
    @property
    def is_remote(self) -> bool: ...
    def __len__(self) -> int: ...
    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        params: SearchParams | None = None,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...
    def score(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]: ...


class SegmentedDense:
    """Vectors of all segments: the base is searched by its kind, the others exactly. Arguments as for `DenseIndex`."""

    def __init__(self, segments: Segments[StoredVectors]) -> None:
        self._segments = segments
        self._base = base = segments.readers[0]
        self.kind: IndexKind = base.kind
        self.device, self.is_remote, self.dimensions = base.device, base.is_remote, base.dimensions

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def has_vectors(self) -> bool:
        """Whether full vectors can be read by row."""
        return all(reader.has_vectors for reader in self._segments.readers)

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        params: SearchParams | None = None,
        allowed: RowMask | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> Ranking:
        """Finds the k nearest vectors of each query in all segments, without deleted ones."""

        def find(part: StoredVectors, mask: RowMask | None, ranks: NDArray[np.uint32] | None) -> Ranking:
            return part.search(vectors, k, params if part is self._base else None, mask, ranks)

        return self._segments.search(find, k, allowed, order)

    def score(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The true scores of given rows."""
        return self._segments.gather(rows, lambda part, its: part.score(vector, its))

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of rows, float32 [m, D]."""
        return self._segments.gather(rows, lambda part, its: part.vectors(its))


NOTES_FOLDER = "import"


class Vectors(Component[StoredVectors, DenseView]):
    """A vector of each document, or of each passage; a delta's vectors are always `flat`, on the CPU and in a file."""

    name = "vectors"
    label = "vectors"
    stage = "index"
    paths = (DENSE_FILE, STORE_FILE)
    per = "vector"
    needs = (COLUMNS.name,)
    options = VectorOptions

    def rules(self, options: VectorOptions, inputs: BuildInputs) -> VectorRules:
        """As requested; a missing or old server is refused now, not after hours of reading."""
        if options.store:
            require_version(connect(options.store))
        return VectorRules(
            index=options.index,
            dimensions=inputs.dimensions,
            device=inputs.device,
            memory_mb=options.memory_mb,
            store=options.store,
        )

    def rules_of(self, segment: Segment, *, delta: bool) -> VectorRules | None:
        """For a compacted version: kind and place of the base's, if enough vectors are left."""
        if delta:  # nothing is opened: an upsert needs neither the base's vectors nor their server
            halves = segment.has(DENSE_FILE) and segment.parameters.get("kind") == "hnsw"
            rules = VectorRules(index="flat", dimensions=0, halves=halves)
            return rules if segment.has_any(self.paths) else None
        if (vectors := segment.get(self)) is None:
            return None
        is_stored = isinstance(vectors, MilvusVectors)
        return VectorRules(
            index=segment.parameters.get("index", "auto"),
            dimensions=vectors.dimensions,
            device=segment.parameters.get("device", "cpu"),
            memory_mb=int(segment.parameters.get("memory_mb", DEFAULT_MEMORY_MB)),
            store=read_store_header(segment.path(STORE_FILE).parent).address if is_stored else None,
            falls_back=True,
        )

    def check_rows(self, rows: Rows, rules: VectorRules) -> None:
        """Refuses too few vectors for a kind that must be trained."""
        rules.kind(rows.count(self.per))

    def build(self, corpus: Corpus, rules: VectorRules) -> None:
        """Indexes the encoded vectors; for a server, on other machines if the corpus can be spread."""
        vectors, target = corpus.encoded.vectors(), corpus.made
        if rules.store is None:
            kind = rules.kind(vectors.shape[0])
            build_dense(vectors, kind, halves=rules.halves).save(target.folder / DENSE_FILE)
            return
        spread = corpus.spread
        insert = None if spread is None else spread(_import_range(rules.store, vectors, target))
        kind = rules.kind(vectors.shape[0])
        _store(rules.store, vectors, kind, target, corpus.notes, corpus.advance, insert)

    def merge(self, sources: Sequence[MergeSource], rules: VectorRules, target: Segment) -> None:
        """Indexes the live vectors as they are stored; no precision is lost twice."""
        oldest = sources[0].segment[self]
        parts = [(each.segment[self].vectors, each.rows(self.per)) for each in sources]
        vectors = KeptVectors(parts, oldest.dimensions)
        kind = rules.kind(len(vectors))
        if rules.store is None:
            like = oldest if isinstance(oldest, DenseIndex) else None
            build_dense(vectors, kind, like, halves=rules.halves).save(target.folder / DENSE_FILE)
            return
        notes = target.folder / NOTES_FOLDER
        _store(rules.store, vectors, kind, target, notes)
        shutil.rmtree(notes)

    def report(self, segment: Segment, rules: VectorRules, seconds: Mapping[str, float]) -> dict[str, Any]:
        """Kind, reason and size."""
        size_bytes = 0 if rules.store else segment.path(DENSE_FILE).stat().st_size
        unit = "documents" if segment.rows.first is None else "passages"
        return {"index": rules.describe(segment[self].kind, len(segment[self]), unit, size_bytes)}

    def counts(self, reader: DenseView) -> dict[str, int]:
        """Dimensions of a vector."""
        return {"dimensions": reader.dimensions}

    def parameters(self, reader: StoredVectors) -> dict[str, Any]:
        """The kind that `auto` chose."""
        return {"kind": reader.kind}

    def open(self, segment: Segment) -> StoredVectors:
        """Opens the file, or the collection that it names; every segment has one of them."""
        is_stored = not segment.below and segment.has(STORE_FILE)
        name = STORE_FILE if is_stored else DENSE_FILE
        segment.require(name)
        device = "cpu" if segment.below else segment.device
        vectors = open_dense(segment.path(name), segment.get(COLUMNS), device)
        # A new import is checked when its version is complete.
        if isinstance(vectors, MilvusVectors) and segment.files is not None:
            vectors.check(segment.hashes)
        _check_rows(segment, vectors)
        return vectors

    def reader(self, segments: Segments[StoredVectors]) -> DenseView:
        """Vectors without deleted ones."""
        if segments.only is not None:
            return segments.only
        base, *added = segments.readers
        for delta in added:
            if delta.dimensions != base.dimensions:
                raise MismatchError(
                    f"index {segments.name}: vectors of {delta.dimensions} dimensions in its delta, "
                    f"{base.dimensions} in its base; roll back to its base"
                )
        if base.device != "cpu":
            raise DeviceError(
                f"index {segments.name} has a delta, which cannot be searched on a GPU; run `glow compact`, or "
                "serve with --device cpu"
            )
        return SegmentedDense(segments)

    def serves(self, reader: DenseView | None) -> Mapping[str, str]:
        """Dense retrieval; similar documents need the document's vector."""
        if reader is None:
            return dict.fromkeys(("dense", "like"), "this index holds no vectors; build it again")
        on_gpu = "this index is on a GPU, which cannot look up the vector of a document"
        return {"dense": "", "like": "" if reader.has_vectors else on_gpu}

    def info(self, reader: DenseView | None) -> dict[str, Any]:
        """Kind of index, and dimensions."""
        if reader is None:
            return {"kind": None, "dimensions": None}
        return {"kind": reader.kind, "dimensions": reader.dimensions}


VECTORS = Vectors()


def _store(
    address: str,
    vectors: VectorRows,
    kind: IndexKind,
    target: Segment,
    notes: Path,
    advance: Callable[[int], None] = lambda _: None,
    insert: ImportRows | None = None,
) -> None:
    """Imports vectors into a server; a call after a killed one resumes it."""
    write_vectors(
        connect(address),
        collection_prefix(notes),
        kind,
        FilterFields(target[COLUMNS]),
        target.folder,
        vectors,
        target.hashes,
        target.get(PASSAGES),
        advance,
        insert,
        notes,
    )


def _import_range(address: str, vectors: VectorRows, target: Segment) -> ImportRange:
    """Inputs of another machine with the same disk."""
    cut = None if target.get(PASSAGES) is None else target.path(PASSAGES_FOLDER).resolve()
    columns = target.path(COLUMNS_FOLDER).resolve().parent
    return ImportRange(address, vectors, columns, target.rows.documents, cut)


def _check_rows(segment: Segment, vectors: StoredVectors) -> None:
    """Checks that every row has a vector, and that a delta is `flat`."""
    count, expected, documents = len(vectors), segment.rows.count("vector"), segment.rows.documents
    if segment.below and (count != expected or vectors.kind != "flat"):
        raise MismatchError(
            f"{segment.below} holds {count} vectors ({vectors.kind}), {segment.below}delta.json says {documents} documents "
            f"and {expected} vectors (flat); {segment.remedy}"
        )
    if count != expected:
        passages = "" if segment.rows.first is None else f" and {expected} passages"
        raise MismatchError(
            f"index {segment.name}: {count} vectors, {documents} stored documents, {documents}{passages} in the manifest; "
            f"{segment.remedy}"
        )
