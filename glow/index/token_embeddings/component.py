"""Token embeddings as a component of an index: the stored part of re-ranking."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from glow.artifact import RERANK_WEIGHT_FILE, RERANKER_FOLDER, RERANKER_SHAPE, open_reranker, reranker_files
from glow.errors import MismatchError
from glow.index.component import BuildInputs, Component, ComponentOptions, Corpus, Records, Rules, Texts
from glow.index.segment import MergeSource, Segment, Segments
from glow.index.token_embeddings.store import (
    STATES_FILES,
    STATES_FOLDER,
    STATES_HEADER,
    CodedStates,
    StatesHeader,
    TokenEmbeddingStore,
    TokenEmbeddingsWriter,
    code_bytes,
)
from glow.options import option
from glow.runtime import Device, DocumentReader, Model, RerankerShape
from glow.text import TermTable, load_preprocessor


class StatesView(Protocol):
    """Token embeddings for re-ranking; `TokenEmbeddingStore` describes each method. Rows are those of vectors."""

    @property
    def header(self) -> StatesHeader: ...
    def __len__(self) -> int: ...
    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...


class StoredStates(StatesView, Protocol):
    """The token embeddings of one segment, for joining and merging; `TokenEmbeddingStore` describes each method."""

    def coded(self, rows: NDArray[np.int64]) -> CodedStates: ...
    def require_model(self, digest: str) -> None: ...


class SegmentedStates:
    """Token embeddings of all segments, from one re-ranker; arguments as for `TokenEmbeddingStore`."""

    def __init__(self, segments: Segments[StoredStates]) -> None:
        self._segments = segments
        self.header: StatesHeader = segments.readers[0].header

    def __len__(self) -> int:
        return len(self._segments)

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of tokens of documents, int64 [B]."""
        return self._segments.gather(rows, lambda reader, here: reader.lengths(here))

    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Token embeddings and mask of documents, padded at the end."""
        lengths = self.lengths(rows)
        mask = (np.arange(int(lengths.max())) < lengths[:, None]).astype(np.int64)
        states = np.zeros((*mask.shape, self.header.size), np.float32)
        for segment, own, places in self._segments.layout.split_rows(rows):
            part, _ = self._segments.readers[segment].read(own)
            states[places, : part.shape[1]] = part
        return states, mask


@dataclass(frozen=True, slots=True)
class StatesJob:
    """The re-ranker that encodes."""

    folder: Path  # its directory, or an index version's copy; absolute
    size: int  # numbers per token

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a token: its scale and its codes."""
        return np.dtype([("scale", "<f2"), ("codes", "u1", (code_bytes(self.size),))])

    def open(self, model: Model, terms: TermTable, device: Device) -> "StatesEncoder":
        """Opens the re-ranker, whose files must be verified; arguments and errors as for `EncodeJob`."""
        preprocessor = load_preprocessor(self.folder, terms)
        return StatesEncoder(DocumentReader(self.folder, preprocessor, device), self)


class StatesEncoder:
    """Encodes documents as codes; safe to use from many threads."""

    reads: tuple[str, ...] = ()

    def __init__(self, reader: DocumentReader, job: StatesJob) -> None:
        self._reader = reader
        self._job = job

    def encode(self, batch: Texts) -> Records:
        """Codes of documents or passages, at least one, in the order given."""
        coded = CodedStates.of(self._reader.read(batch.texts))
        records = np.empty(len(coded.codes), self._job.dtype)
        records["scale"], records["codes"] = coded.scales, coded.codes
        return Records(records, coded.lengths)


def coded_of(records: Records) -> CodedStates:
    """Stored documents from records of `StatesEncoder`."""
    return CodedStates(records.counts, records.records["codes"], records.records["scale"])


def states_header(folder: Path, digest: str) -> StatesHeader:
    """The header of the store of a verified re-ranker with this hash, with counts of 0."""
    shape = RerankerShape.load(folder / RERANKER_SHAPE)
    return StatesHeader(
        model=digest,
        split=shape.split,
        size=shape.size,
        position_start=shape.query_tokens,
        document_tokens=shape.document_tokens,
        documents=0,
        tokens=0,
    )


class TokenEmbeddingsOptions(ComponentOptions):
    """The re-ranker whose token embeddings are stored."""

    rerank: Path | None = option(
        None,
        "Re-ranker directory. Its token embeddings of all documents are stored, for searches with `rerank`.",
        metavar="DIR",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEmbeddingsRules(Rules):
    """The re-ranker whose token embeddings are stored."""

    header: StatesHeader  # of the store, with counts of 0
    folder: Path  # the re-ranker's directory, absolute
    copied: tuple[str, ...] = ()  # files of the re-ranker to copy into a new index


class TokenEmbeddings(Component[StoredStates, StatesView]):
    """Token embeddings of every document or passage, and in a new index a copy of their re-ranker."""

    name = "token_embeddings"
    part = "rerank"
    label = "term representations"
    stage = "states"
    per = "vector"
    paths = (f"{STATES_FOLDER}/",)
    stays = (f"{RERANKER_FOLDER}/", RERANK_WEIGHT_FILE)
    options = TokenEmbeddingsOptions

    def rules(self, options: TokenEmbeddingsOptions, inputs: BuildInputs) -> TokenEmbeddingsRules | None:
        """With the requested re-ranker, verified."""
        if options.rerank is None:
            return None
        manifest, digest = open_reranker(options.rerank)
        return TokenEmbeddingsRules(
            hashes={"reranker": digest},
            parents={"reranker": {"name": manifest.name, "hash": digest}},
            header=states_header(options.rerank, digest),
            folder=options.rerank.resolve(),
            copied=reranker_files(manifest.files),
        )

    def rules_of(self, segment: Segment, *, delta: bool) -> TokenEmbeddingsRules | None:
        """With the version's own copy of the re-ranker, and the same shape."""
        states = segment.get(self)
        if states is None:
            return None
        return TokenEmbeddingsRules(
            hashes={"reranker": states.header.model},
            header=states.header.model_copy(update={"documents": 0, "tokens": 0}),
            folder=(segment.root / RERANKER_FOLDER).resolve(),
        )

    def encoding(self, segment: Segment, rules: TokenEmbeddingsRules) -> StatesJob:
        """The re-ranker reads the same texts as the document tower."""
        return StatesJob(rules.folder, rules.header.size)

    def build(self, corpus: Corpus, rules: TokenEmbeddingsRules) -> None:
        """Writes the store, and copies the re-ranker; a delta uses its base's copy."""
        encoded = corpus.encoded.records(self.name)
        blocks = (coded_of(records) for records in encoded if len(records.counts))
        _write(corpus.made.folder / STATES_FOLDER, rules.header, blocks)
        if rules.copied:
            target = corpus.made.folder / RERANKER_FOLDER
            target.mkdir()
            for name in rules.copied:
                shutil.copyfile(rules.folder / name, target / name)

    def merge(self, sources: Sequence[MergeSource], rules: TokenEmbeddingsRules, target: Segment) -> None:
        """Copies the codes of live rows without decoding; stores of different re-rankers are refused."""
        for each in sources:
            each.segment[self].require_model(rules.header.model)
        blocks = (
            each.segment[self].coded(rows[start : start + AT_ONCE])
            for each in sources
            for rows in (each.rows(self.per),)
            for start in range(0, len(rows), AT_ONCE)
        )
        _write(target.folder / STATES_FOLDER, rules.header, blocks)

    def report(
        self, segment: Segment, rules: TokenEmbeddingsRules, seconds: Mapping[str, float]
    ) -> dict[str, Any]:
        """Parameters and size."""
        return {"rerank": _describe(segment[self].header, segment.path(STATES_FOLDER))}

    def open(self, segment: Segment) -> TokenEmbeddingStore | None:
        """Opens the store, which must be that of the version's re-ranker."""
        is_base = segment.files is not None and not segment.below
        shape = f"{RERANKER_FOLDER}/{RERANKER_SHAPE}"
        if not segment.has_any(self.paths) and not (is_base and segment.has(shape)):
            return None
        segment.require(*(f"{STATES_FOLDER}/{name}" for name in STATES_FILES))
        if is_base and not segment.has(shape):
            segment.require(f"{RERANKER_FOLDER}/")
        states = TokenEmbeddingStore.open(segment.path(STATES_FOLDER), segment.rows.count(self.per))
        if segment.files is not None:
            _check_reranker(segment, states)
        return states

    def reader(self, segments: Segments[StoredStates]) -> StatesView:
        """Rows of all segments, if the re-ranker is the same."""
        if segments.only is not None:
            return segments.only
        base, *added = segments.readers
        for delta in added:
            delta.require_model(base.header.model)
        return SegmentedStates(segments)

    def serves(self, reader: StatesView | None) -> Mapping[str, str]:
        """Re-ranking."""
        lacks = "this index holds no term representations to re-rank with; build it with a re-ranker (glow build --rerank DIR)"
        return {"rerank": lacks if reader is None else ""}

    def info(self, reader: StatesView | None) -> dict[str, Any]:
        """Parameters of the store."""
        stored = None if reader is None else {"bits": reader.header.bits, "size": reader.header.size}
        return {"rerank": stored}


TOKEN_EMBEDDINGS = TokenEmbeddings()
AT_ONCE = 1024
"""Rows that are copied together."""


def _write(folder: Path, header: StatesHeader, blocks: Iterator[CodedStates]) -> None:
    with TokenEmbeddingsWriter(folder, header) as writer:
        for block in blocks:
            writer.add(block)
        writer.close()


def _check_reranker(segment: Segment, states: TokenEmbeddingStore) -> None:
    """Checks that the re-ranker has the manifest's hash and the store's shape."""
    states.require_model(segment.hashes.get("reranker", "none"))
    place, header = segment.root / RERANKER_FOLDER / RERANKER_SHAPE, states.header
    if not place.is_file():
        raise MismatchError(
            f"index {segment.name} has {segment.below}{STATES_FOLDER}/ and no {RERANKER_FOLDER}/{RERANKER_SHAPE}; {segment.remedy}"
        )
    shape = RerankerShape.load(place)
    expected = (shape.split, shape.size, shape.query_tokens, shape.document_tokens)
    own = (header.split, header.size, header.position_start, header.document_tokens)
    if own != expected:
        raise MismatchError(
            f"{segment.below}{STATES_FOLDER}/{STATES_HEADER} has the layers, numbers, start and longest document {own}, "
            f"the re-ranker has {expected}; {segment.remedy}"
        )


def _describe(header: StatesHeader, folder: Path) -> dict[str, Any]:
    size_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "reranker": header.model,
        "split": header.split,
        "size": header.size,
        "bits": header.bits,
        "tokens": header.tokens,
        "bytes": size_bytes,
        "bytes_per_token": round(size_bytes / max(header.tokens, 1), 1),
    }
