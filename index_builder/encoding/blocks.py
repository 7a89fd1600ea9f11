"""Blocks of documents in input order, whose vectors and component records become files that never change.

    START-STOP.f32        vectors, float32 [rows, D], little-endian; one row for each text
    START-STOP.COMPONENT  a component's records in its own dtype, text by text
    START-STOP.json       the `Block`, each component's number of records of each row, and SHA-256 of the other files

Each is written under another name, synced and renamed, the description last. The files depend only on the documents,
not on threads, processes or earlier attempts. So chunks are cut within the block, and the tower runs on one thread.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from glow.artifact import IndexRoot, file_sha256, sync
from glow.errors import GlowError
from glow.index import EncodeJob, Records, VectorRows
from glow.index.passages import TextsOfDocuments
from glow.index.stored_fields import DocumentStore
from glow.records import Document
from glow.runtime import Device, Model
from glow.text import TermTable
from glow_index_builder.encoding.text_encoder import (
    EncodedTexts,
    EncodeError,
    KnownVectors,
    Text,
    TextEncoder,
    encode_unknown,
    texts_with_known,
)
from glow_index_builder.input.formats import one_line
from glow_index_builder.open_version import OpenVersion
from glow_index_builder.progress import peak_memory_bytes, release_memory

VECTORS_SUFFIX = "f32"


@dataclass(frozen=True, slots=True)
class Block:
    """A range of stored documents, and what its files hold once they are encoded."""

    start: int  # rows of the store, `stop` excluded
    stop: int
    skip: tuple[tuple[int, str], ...] = ()  # row and cause of each document that cannot be encoded, ascending
    fault: str | None = None  # why it could not be encoded; None if it was, or was not tried
    rows: int = 0  # number of vectors
    reused: int = 0  # number of documents whose vectors the live version gave
    truncated: Mapping[str, int] = field(
        default_factory=dict
    )  # field -> number of texts that lost words in it
    seconds: float = 0.0  # encoding time
    peak_memory_bytes: int = 0  # peak memory of the encoding process so far

    @property
    def name(self) -> str:
        """The name of its files; sorts by `start`."""
        return f"{self.start:010d}-{self.stop:010d}"


def plan_blocks(documents: int, size: int) -> list[Block]:
    """Cuts rows 0 to `documents` into blocks of `size`; the last may be smaller."""
    return [Block(start, min(start + size, documents)) for start in range(0, documents, size)]


def write_block(folder: Path, block: Block, parts: Iterable[EncodedTexts]) -> Block:
    """Writes the files of a block, or rewrites damaged ones; returns it with what they hold."""
    started, rows, reused = perf_counter(), 0, 0
    truncated: Counter[str] = Counter()
    counts: dict[str, list[int]] = {}
    files: dict[str, BinaryIO] = {}
    with ExitStack() as stack:
        for part in parts:
            rows += len(part.vectors)
            reused += part.reused
            truncated.update(part.truncated)
            arrays = {name: records.records for name, records in part.records.items()}
            for suffix, array in {VECTORS_SUFFIX: part.vectors.astype("<f4", copy=False), **arrays}.items():
                if suffix not in files:
                    files[suffix] = stack.enter_context(_replacing(folder, f"{block.name}.{suffix}"))
                files[suffix].write(array.tobytes())
            for component, records in part.records.items():
                counts.setdefault(component, []).extend(records.counts.tolist())
    block = replace(block, fault=None, rows=rows, reused=reused, truncated=dict(truncated))
    block = replace(block, seconds=perf_counter() - started, peak_memory_bytes=peak_memory_bytes())
    sha256 = {suffix: file_sha256(folder / f"{block.name}.{suffix}") for suffix in files}
    with _replacing(folder, f"{block.name}.json") as file:
        file.write(json.dumps({"block": asdict(block), "counts": counts, "sha256": sha256}).encode())
    sync(folder)
    return block


def read_block(folder: Path, block: Block) -> Block | None:
    """A block with what its files hold; None if a file is missing or has changed."""
    try:
        values: dict[str, Any] = json.loads((folder / f"{block.name}.json").read_bytes())
        for suffix, sha256 in values["sha256"].items():
            if file_sha256(folder / f"{block.name}.{suffix}") != sha256:
                return None
        skip = tuple((int(row), str(reason)) for row, reason in values["block"].pop("skip"))
        return Block(skip=skip, **values["block"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@contextmanager
def _replacing(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Opens a file that gets its name when it is complete and on the disk."""
    # Two processes may write one block if a parent died and its child continues: each its own file.
    partial = folder / f".{name}-{os.getpid()}"
    try:
        with partial.open("wb") as file:
            yield file
        sync(partial)
        partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class EncodedBlocks:
    """Encoded documents, read from their files on demand; an `Encoded` of `glow.index`."""

    folder: Path
    blocks: Sequence[Block]  # in order of their rows, all encoded
    dimensions: int
    dtypes: Mapping[str, np.dtype[Any]]  # name of a component -> dtype of its records
    resumed: int = 0  # number of blocks from earlier runs
    failures: int = 0  # number of retries after a failure
    documents: int = 0  # documents encoded by this run

    @property
    def reused(self) -> int:
        """Number of documents whose vectors the live version gave."""
        return sum(block.reused for block in self.blocks)

    @property
    def poison(self) -> dict[int, str]:
        """Row of each document that cannot be encoded -> the cause, ascending."""
        return {row: reason for block in self.blocks for row, reason in block.skip}

    def records(self, component: str) -> Iterator[Records]:
        """A component's records, file by file in row order; empty if no job encoded it."""
        for block in self.blocks if component in self.dtypes else ():
            if block.rows:
                counts = json.loads((self.folder / f"{block.name}.json").read_bytes())["counts"][component]
                records = np.fromfile(self.folder / f"{block.name}.{component}", self.dtypes[component])
                yield Records(records, np.array(counts, np.int64))

    def vectors(self) -> VectorRows:
        """All vectors, float32 [v, D]; read in blocks, not kept in memory."""
        paths = [self.folder / f"{block.name}.{VECTORS_SUFFIX}" for block in self.blocks]
        return VectorFiles(paths, [block.rows for block in self.blocks], self.dimensions)


class VectorFiles:
    """The vectors of several files as one array [n, D], read on demand and not kept. It can be pickled."""

    def __init__(self, paths: Sequence[Path], rows: Sequence[int], dimensions: int) -> None:
        """`rows` are those of each file; one without rows may be missing."""
        self._paths = [path.absolute() for path in paths]
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self.shape = (int(self._starts[-1]), dimensions)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads a slice without step, as float32 [m, D], or row numbers of any shape, as float32 [..., D]."""
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return self._read(np.arange(start, stop))
        rows, places = np.unique(index, return_inverse=True)
        vectors: NDArray[np.float32] = self._read(rows)[places.reshape(-1)]
        return vectors.reshape(*index.shape, self.shape[1])

    def _read(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Reads ascending rows; each file once, from the first to the last of its rows."""
        vectors = np.empty((len(rows), self.shape[1]), np.float32)
        owners = np.searchsorted(self._starts, rows, "right") - 1
        edges = np.flatnonzero(np.diff(owners, prepend=-1, append=-1))
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            owner = int(owners[begin])
            here = rows[begin:end] - self._starts[owner]
            first, count = int(here[0]), int(here[-1] - here[0]) + 1
            width = self.shape[1]
            block = np.fromfile(self._paths[owner], "<f4", count * width, offset=4 * first * width)
            vectors[begin:end] = block.reshape(count, width)[here - first]
        return vectors


CHUNK_DOCUMENTS = 256
CHUNK_CHARACTERS = 4 << 20


@dataclass(frozen=True)
class BlockEncoder:
    """Encodes blocks; thread-safe. It holds only paths and options, so that it can be sent to another process."""

    model: Path
    store: Path
    terms: Path  # directory of the index's term statistics
    cuts: Path | None  # directory of the passage boundaries; None: documents are not cut
    folder: Path  # directory that blocks are written to
    device: Device
    threads: int  # blocks that one process encodes at the same time, >= 1
    jobs: Mapping[str, EncodeJob] = field(default_factory=dict, hash=False)  # by name of the component
    known: Path | None = None  # directory of a version whose vectors may be taken; None: none may

    def encode(self, block: Block) -> Block:
        """Encodes a block and writes it."""
        return write_block(self.folder, block, self.parts(block))

    def parts(self, block: Block) -> Iterator[EncodedTexts]:
        """The encoded chunks of a block; each is read when the one before is done."""
        encoder, store, texts_of, known = open_encoder(self)
        skip = {row for row, _ in block.skip}
        rows = enumerate(store.scan(block.start, block.stop), block.start)
        documents = (pair for pair in rows if pair[0] not in skip)
        texts = texts_with_known(documents, texts_of, known)
        return (encode_unknown(encoder, chunk) for chunk in _chunks(texts))


@lru_cache(maxsize=1)
def open_encoder(
    job: BlockEncoder,
) -> tuple[TextEncoder, DocumentStore, TextsOfDocuments, KnownVectors | None]:
    """Opens the model and documents, which a process keeps open for its next blocks."""
    model, terms = Model.open(job.model), TermTable.load(job.terms)
    encoder = TextEncoder.open(model, terms, job.device, job.jobs)
    known = None
    if job.known is not None:
        known = KnownVectors(OpenVersion.open(IndexRoot(job.known.parent), job.known.name))
    return encoder, DocumentStore(job.store), TextsOfDocuments.open(job.cuts), known


def _chunks(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Cuts a stream by number and by size, as long documents take more memory."""
    chunk: list[Text] = []
    characters = 0
    for text in texts:
        chunk.append(text)
        if isinstance(text, Document):
            characters += sum(len(value) for values in text.fields.values() for value in values)
        if len(chunk) == CHUNK_DOCUMENTS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def encode_block(job: BlockEncoder, block: Block) -> Block:
    """Encodes a block; an error that a document may have caused becomes its fault, others are raised."""
    try:
        return job.encode(block)
    except EncodeError as error:
        return replace(block, fault=str(error))
    except (GlowError, OSError):
        raise
    except Exception as error:  # errors of the tower and the tokenizer have no common type
        return replace(block, fault=f"{type(error).__name__}: {one_line(error)}")
    finally:
        release_memory()  # fragmented memory would grow with the number of blocks
