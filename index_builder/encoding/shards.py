"""Encoding batches ("shards"): a range of documents in input order becomes files that never change, named START-STOP.

Stored documents or their passages become vectors and records, in bounded memory. A shard's files depend only on its
documents, not on threads, processes or earlier attempts. So chunks are cut within the shard, and the tower runs on one
thread. A way to encode shards only reports the outcome of each; `schedule` decides what to retry and which document is
to blame.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from glow.errors import GlowError
from glow.index import EncodeJob
from glow.index.passages import TextsOfDocuments
from glow.index.stored_fields import DocumentStore
from glow.records import Document
from glow.runtime import Device, Model
from glow.text import TermTable
from glow_index_builder.encoding.files import EncodedTexts, TextsReport, read_texts_report, write_texts
from glow_index_builder.encoding.text_encoder import EncodeError, TextEncoder
from glow_index_builder.progress import release_memory


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of stored documents to encode."""

    start: int  # rows of the store, `stop` excluded
    stop: int
    skip: tuple[tuple[int, str], ...] = ()  # row and cause of each document that cannot be encoded, ascending
    is_probe: bool = False  # whether it is encoded only as a test, without writing files

    @property
    def name(self) -> str:
        """The name of its files; sorts by `start`."""
        return f"{self.start:010d}-{self.stop:010d}"

    @property
    def documents(self) -> int:
        """Number of documents to encode."""
        return self.stop - self.start - len(self.skip)


@dataclass(frozen=True, slots=True)
class ShardReport:
    """Describes a finished shard."""

    texts: TextsReport
    skipped: tuple[tuple[int, str], ...]  # documents that could not be encoded, as `Shard.skip`


def plan_shards(documents: int, size: int) -> list[Shard]:
    """Cuts rows 0 to `documents` into shards of `size`; the last may be smaller."""
    return [Shard(start, min(start + size, documents)) for start in range(0, documents, size)]


def write_shard(folder: Path, shard: Shard, ids: Sequence[str], parts: Iterable[EncodedTexts]) -> ShardReport:
    """Writes a shard, or rewrites a damaged one."""
    texts = write_texts(folder, shard.name, ids, parts, skipped=shard.skip)
    return ShardReport(texts, shard.skip)


def read_report(
    folder: Path, shard: Shard, dimensions: int, components: Iterable[str] = ()
) -> ShardReport | None:
    """The report of a finished shard; None if a file is missing or has changed."""
    read = read_texts_report(folder, shard.name, dimensions, components)
    if read is None:
        return None
    texts, values = read
    try:
        skipped = tuple((int(row), str(reason)) for row, reason in values["skipped"])
    except (ValueError, KeyError, TypeError):
        return None
    is_whole = len(texts.ids) + len(skipped) == shard.stop - shard.start
    return ShardReport(texts, skipped) if is_whole else None


CHUNK_DOCUMENTS = 256
CHUNK_CHARACTERS = 4 << 20


@dataclass(frozen=True, slots=True)
class ShardJob:
    """The paths and options of an encoding job, which a process or machine gets before its shards."""

    model: Path
    store: Path
    terms: Path  # directory of the index's term statistics
    cuts: Path | None  # directory of the passage boundaries; None: documents are not cut
    shards: Path  # directory that shards are written to
    device: Device
    threads: int  # shards that one process encodes at the same time, >= 1
    # name of a component -> its encoding job
    jobs: Mapping[str, EncodeJob] = field(default_factory=dict, hash=False)


class ShardEncoder:
    """Encodes shards; thread-safe."""

    def __init__(
        self, encoder: TextEncoder, store: DocumentStore, texts: TextsOfDocuments, folder: Path
    ) -> None:
        self._encoder = encoder
        self._store = store
        self._of_documents = texts
        self._folder = folder

    @classmethod
    def open(cls, job: ShardJob) -> Self:
        """Opens the model, documents and term statistics of a job."""
        model, terms = Model.open(job.model), TermTable.load(job.terms)
        return cls(
            TextEncoder.open(model, terms, job.device, job.jobs),
            DocumentStore(job.store),
            TextsOfDocuments.open(job.cuts),
            job.shards,
        )

    def encode(self, shard: Shard) -> ShardReport | None:
        """Encodes a shard and writes it; a probe is only encoded, not written."""
        ids: list[str] = []
        parts = self._parts(shard, ids)
        if not shard.is_probe:
            return write_shard(self._folder, shard, ids, parts)
        for _ in parts:
            pass
        return None

    def _parts(self, shard: Shard, ids: list[str]) -> Iterator[EncodedTexts]:
        for chunk in _chunks(self._texts(shard, ids)):
            yield self._encoder.encode(chunk)

    def _texts(self, shard: Shard, ids: list[str]) -> Iterator[Document]:
        """The documents or passages of a shard; appends the documents' ids to `ids`."""
        skip = {row for row, _ in shard.skip}
        for row, document in enumerate(self._store.scan(shard.start, shard.stop), shard.start):
            if row not in skip:
                ids.append(document.id)
                yield from self._of_documents.of(document, row)


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Cuts a stream by number and by size, so that memory does not grow with long documents."""
    chunk: list[Document] = []
    characters = 0
    for document in documents:
        chunk.append(document)
        characters += sum(len(value) for values in document.fields.values() for value in values)
        if len(chunk) == CHUNK_DOCUMENTS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a shard."""

    shard: Shard
    report: ShardReport | None = None  # describes its files; None for a probe or a failure
    fault: str | None = None  # why it could not be encoded; None if it was


Run = Callable[[Sequence[Shard], bool], Iterator[Outcome]]
"""Encodes shards in any order, one outcome each; if the flag is set, a process gets one shard at a time, so that its
death has one cause. It raises errors that a retry cannot help: of the model, the device or the disk."""


def attempt(encoder: ShardEncoder, shard: Shard) -> Outcome:
    """Encodes a shard; an error that a document may have caused becomes a fault, others are raised."""
    try:
        return Outcome(shard, encoder.encode(shard))
    except EncodeError as error:
        return Outcome(shard, fault=str(error))
    except (GlowError, OSError):
        raise
    except Exception as error:  # errors of the tower and the tokenizer have no common type
        return Outcome(shard, fault=f"{type(error).__name__}: {' '.join(str(error).split())}")
    finally:
        release_memory()  # fragmented memory would grow with the number of shards


def sample_seconds(job: ShardJob, documents: int) -> float | None:
    """Seconds that one thread needs to encode the first documents, without writing them; None if one of them fails."""
    encoder, started = ShardEncoder.open(job), time.perf_counter()
    outcome = attempt(encoder, Shard(0, documents, is_probe=True))
    return None if outcome.fault else time.perf_counter() - started


@contextmanager
def in_threads(job: ShardJob) -> Iterator[Run]:
    """Encodes in threads of this process: towers run outside of Python's lock."""
    encoder = ShardEncoder.open(job)
    pool = ThreadPoolExecutor(job.threads, thread_name_prefix="encode")

    def run(shards: Sequence[Shard], careful: bool) -> Iterator[Outcome]:
        futures: Iterable[Future[Outcome]] = [pool.submit(attempt, encoder, shard) for shard in shards]
        for future in as_completed(futures):
            yield future.result()

    try:
        yield run
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def in_child(job: ShardJob, encoder: type[ShardEncoder] = ShardEncoder) -> Iterator[Run]:
    """Encodes in one child process, shard by shard: a document that kills it fails only its shard."""

    def start() -> ProcessPoolExecutor:
        # Spawned, not forked: towers and their threads do not survive a fork.
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_end_with_parent)

    pool = start()

    def run(shards: Sequence[Shard], careful: bool) -> Iterator[Outcome]:
        nonlocal pool
        for shard in shards:
            try:
                outcome = pool.submit(encode_shard, encoder, job, shard).result()
            except BrokenProcessPool:
                pool = start()
                outcome = Outcome(shard, fault="the process that encoded it died")
            yield outcome

    try:
        yield run
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Ends a child when its parent dies: a half-done shard must not be written during the next build."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both, and the parent ends the child
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


_opened: dict[ShardJob, ShardEncoder] = {}
"""The encoder of the last job, which a worker process keeps open."""


def encode_shard(encoder: type[ShardEncoder], job: ShardJob, shard: Shard) -> Outcome:
    """Encodes a shard in a worker process."""
    if job not in _opened:
        _opened.clear()
        _opened[job] = encoder.open(job)
    return attempt(_opened[job], shard)
