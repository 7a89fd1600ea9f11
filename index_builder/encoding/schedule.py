"""Encodes the corpus in blocks: keeps finished ones, encodes the others and rejects only documents that fail.

A failed block is tried once more, by itself. If it fails again, it is halved until single documents are found that
fail alone. The whole block is then encoded without them, so its vectors do not depend on the search. A way to encode
blocks (threads, a child process, Ray) only reports the fault of each.

Ray works on this machine or on a cluster with a shared disk. A task is one block, or one range of rows that a vector
server gets. A process keeps its encoder open for the next tasks; if it dies, only its task fails.
"""

import importlib
import multiprocessing
import os
import signal
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from glow.errors import BuildError, DeviceError, StoreError
from glow.index import COMPONENTS, EncodeJob, RangeTask
from glow_index_builder.encoding.blocks import (
    Block,
    BlockEncoder,
    EncodedBlocks,
    encode_block,
    open_encoder,
    read_block,
    write_block,
)
from glow_index_builder.encoding.text_encoder import (
    EncodedTexts,
    EncodeError,
    Text,
    TextEncoder,
    encode_unknown,
)
from glow_index_builder.options import CommonOptions

FIRST_FAILURES = 8
"""If so many blocks fail before one succeeds, the documents are not the cause."""
MAX_POISONOUS = 1_000
LAST_TRIES = 3
MAX_KILLS = 2
"""After so many runs of a build that were killed while they encoded, a document may be to blame. It can be found only
from another process."""
DIED = "the process that encoded it died"

Run = Callable[[Sequence[Block], bool], Iterator[Block]]
"""Encodes blocks in any order, and yields each with what its files hold or with its fault; if the flag is set, a
process gets one block at a time, so that its death has one cause. It raises errors that a retry cannot help: of the
model, the device or the disk."""


def start_encoding(options: CommonOptions, job: BlockEncoder, kills: int) -> AbstractContextManager[Run]:
    """The way in which a build encodes, not started yet; `kills` is how many of its runs were killed meanwhile."""
    if options.runner == "ray":
        return in_ray(job, options.workers, options.ray_address)
    return in_threads(job) if kills < MAX_KILLS else in_child(job)


def encode_blocks(
    encoding: AbstractContextManager[Run],
    plan: Sequence[Block],
    folder: Path,
    dimensions: int,
    advance: Callable[[int], None],
    jobs: Mapping[str, EncodeJob],  # name of a component -> its encoding job
) -> EncodedBlocks:
    """Encodes the unfinished blocks."""
    folder.mkdir(exist_ok=True)
    done: dict[int, Block] = {}
    for planned in plan:
        if block := read_block(folder, planned):
            done[block.start] = block
            advance(block.stop - block.start)
    missing = [block for block in plan if block.start not in done]
    resumed, failures, poison = len(done), 0, dict[int, str]()

    def encode(run: Run, blocks: Sequence[Block], *, careful: bool) -> list[Block]:
        """Encodes blocks; returns the failed ones, in order."""
        nonlocal failures
        failed: list[Block] = []
        for block in run(blocks, careful) if blocks else ():
            if block.fault is None:
                done[block.start] = block
                advance(block.stop - block.start)
                continue
            failed.append(block)
            failures += 1
            if not done and not careful and len(failed) >= FIRST_FAILURES:
                raise BuildError(
                    f"the first {len(failed)} shards failed, so it is not the documents: {block.fault}; "
                    "export the model again, or see that the memory is enough"
                )
        return sorted(failed, key=lambda block: block.start)

    if missing:
        with encoding as run:
            failed = encode(run, missing, careful=False)
            failed = encode(run, failed, careful=True)
            for _ in range(LAST_TRIES):
                find_poison(run, failed, poison)
                failed = encode(run, [_without(block, poison) for block in failed], careful=True)
            if failed:
                raise BuildError(
                    f"documents {failed[0].start} to {failed[0].stop - 1} cannot be encoded together, though "
                    f"each can: {failed[0].fault}; build with a smaller --encode-batch-documents or fewer --threads"
                )
    return EncodedBlocks(
        folder,
        [done[block.start] for block in plan],
        dimensions,
        {name: job.dtype for name, job in jobs.items()},
        resumed,
        failures,
        documents=sum(block.stop - block.start for block in missing),
    )


def _without(block: Block, poison: Mapping[int, str]) -> Block:
    rows = (row for row in range(block.start, block.stop) if row in poison)
    return replace(block, skip=tuple((row, poison[row]) for row in rows))


def find_poison(run: Run, failed: Iterable[Block], poison: dict[int, str]) -> None:
    """Halves blocks until the documents that fail alone, twice, are found, and adds them and their causes to `poison`."""

    def failures(blocks: Sequence[Block]) -> list[Block]:
        faulty = [block for block in run(blocks, True) if block.fault is not None] if blocks else []
        return sorted(faulty, key=lambda block: block.start)

    suspects = list(failed)
    while suspects:
        halves, alone = list[Block](), list[Block]()
        for block in suspects:
            middle = (block.start + block.stop) // 2
            if middle == block.start:
                alone.append(block)
            else:
                halves += [replace(block, stop=middle), replace(block, start=middle)]
        poison |= {block.start: block.fault or "" for block in failures(alone)}
        if len(poison) > MAX_POISONOUS:
            raise BuildError(
                f"more than {MAX_POISONOUS} documents cannot be encoded; the last: {list(poison.values())[-1]}"
            )
        suspects = failures(halves)


@contextmanager
def in_threads(job: BlockEncoder) -> Iterator[Run]:
    """Encodes in threads of this process: towers run outside of Python's lock."""
    open_encoder(job)
    pool = ThreadPoolExecutor(job.threads, thread_name_prefix="encode")

    def run(blocks: Sequence[Block], careful: bool) -> Iterator[Block]:
        for future in as_completed([pool.submit(encode_block, job, block) for block in blocks]):
            yield future.result()

    try:
        yield run
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        open_encoder.cache_clear()


@contextmanager
def in_child(job: BlockEncoder) -> Iterator[Run]:
    """Encodes in one child process, block by block: a document that kills it fails only its block."""

    def start() -> ProcessPoolExecutor:
        # Spawned, not forked: towers and their threads do not survive a fork.
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_end_with_parent)

    pool = start()

    def run(blocks: Sequence[Block], careful: bool) -> Iterator[Block]:
        nonlocal pool
        for block in blocks:
            try:
                encoded = pool.submit(encode_block, job, block).result()
            except BrokenProcessPool:
                pool = start()
                encoded = replace(block, fault=DIED)
            yield encoded

    try:
        yield run
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Ends a child when its parent dies: a half-done block must not be written during the next build."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both, and the parent ends the child
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


MAX_DEATHS = 3
"""After so many consecutive deaths without a response, the build fails."""
QUEUED = 2
"""Queued tasks per running task: few, but enough that no worker is idle."""
LOOK_S = 1.0
STRAGGLER_S, STRAGGLER_TIMES = 30.0, 5.0
"""The last blocks start again on another worker after so many seconds and so many times a block's usual time."""


@contextmanager
def in_ray(job: BlockEncoder, workers: int, address: str | None = None) -> Iterator[Run]:
    """Encodes as tasks of Ray, which request `job.threads` CPUs each, and a GPU if the tower runs on one."""
    with _joined(workers * job.threads, address) as ray:
        available = ray.cluster_resources()
        if job.device == "cuda" and not available.get("GPU"):
            raise DeviceError("device 'cuda' was asked for, and Ray has no GPU; use --device cpu")
        cpus, gpus = min(job.threads, int(available.get("CPU", 1))), int(job.device == "cuda")
        remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)  # the build decides about retries
        task, reference = remote(encode_block), ray.put(job)
        yield partial(_run, ray, lambda block: task.remote(reference, block), workers)


def _run(
    ray: Any, start: Callable[[Block], Any], workers: int, blocks: Sequence[Block], careful: bool
) -> Iterator[Block]:
    """As `Run`; a process has one block at a time anyway. Slow last blocks also start on another worker."""
    waiting, deaths = deque(blocks), 0
    # task -> its block, and when it began. A block may have two tasks, which write equal files.
    running: dict[Any, tuple[Block, float]] = {}
    took: list[float] = []
    limit = workers if careful else QUEUED * workers
    while waiting or running:
        while waiting and len(running) < limit:
            block = waiting.popleft()
            running[start(block)] = block, time.monotonic()
        ready, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_S)
        for reference in ready:
            block, begun = running.pop(reference)
            took.append(time.monotonic() - begun)
            encoded = _result(ray, reference, block)
            deaths = deaths + 1 if encoded.fault == DIED and not careful else 0
            if deaths >= MAX_DEATHS * workers:
                raise BuildError(
                    "Ray's workers die as soon as they start; see its logs, and give them more memory"
                )
            copies = [task for task, (other, _) in running.items() if other == block]
            if encoded.fault == DIED and copies:
                continue  # its copy continues
            for copy in copies:
                del running[copy]
                ray.cancel(copy, force=True)
            yield encoded
        if not waiting and took:
            late = time.monotonic() - max(STRAGGLER_S, STRAGGLER_TIMES * statistics.median(took))
            for block, begun in list(running.values()):
                if begun < late and sum(other == block for other, _ in running.values()) == 1:
                    running[start(block)] = block, time.monotonic()


def _result(ray: Any, reference: Any, block: Block) -> Block:
    errors = ray.exceptions
    try:
        encoded: Block = ray.get(reference)
    except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError):
        return replace(block, fault=DIED)
    except errors.RayTaskError as error:
        raise error.cause from error
    return encoded


@contextmanager
def _joined(cpus: int, address: str | None) -> Iterator[Any]:
    """The package Ray, started if this process has not done so, and then stopped again."""
    ray = importlib.import_module("ray")
    is_ours = not ray.is_initialized()
    if is_ours:
        start_ray(cpus, address)
    try:
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


def start_ray(cpus: int, address: str | None = None) -> None:
    """Starts Ray here, or joins the cluster at an address; Ray's processes get this one's import path."""
    ray = importlib.import_module("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {"env_vars": {"PYTHONPATH": paths}}
    common: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "runtime_env": environment}
    if address:
        ray.init(address=address, **common)
    else:
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, configure_logging=False, **common)


RANGE_ROWS = 32_768
"""Rows per task; progress is reported, and a killed import resumes, in such steps."""
TRIES = 2
WAITING = 2
"""Queued ranges per running one."""


@dataclass(frozen=True, slots=True)
class RayImport:
    """Imports rows into a collection as Ray tasks; an `ImportRows` of `glow.index`."""

    _job: RangeTask
    _workers: int  # tasks at the same time, >= 1
    _address: str | None = None  # address of a cluster; None: starts Ray here

    def __call__(self, collection: str, start: int, stop: int) -> Iterator[int]:
        """As `ImportRows` says."""
        with _joined(self._workers, self._address) as ray:
            yield from self._run(ray, collection, start, stop)

    def _run(self, ray: Any, collection: str, start: int, stop: int) -> Iterator[int]:
        job = ray.put(self._job)
        task = ray.remote(num_cpus=1, max_retries=0)(_import)
        waiting = deque((first, min(first + RANGE_ROWS, stop), 1) for first in range(start, stop, RANGE_ROWS))
        running: dict[Any, tuple[int, int, int]] = {}
        done: dict[int, int] = {}
        while waiting or running:
            while waiting and len(running) < WAITING * self._workers:
                piece = waiting.popleft()
                running[task.remote(job, collection, *piece[:2])] = piece
            (reference,), _ = ray.wait(list(running), num_returns=1)
            first, last, tries = running.pop(reference)
            try:
                ray.get(reference)
            except ray.exceptions.RayError as error:
                if tries >= TRIES:
                    cause = getattr(error, "cause", None) or error
                    reason = (str(cause).strip() or type(cause).__name__).splitlines()[-1][:300]
                    raise StoreError(
                        f"rows {first} to {last} could not be imported by Ray's workers: {reason}; run the build again"
                    ) from error
                waiting.appendleft((first, last, tries + 1))
                continue
            done[first] = last
            before = start
            while start in done:
                start = done.pop(start)
            if start > before:
                yield start


def _import(job: RangeTask, collection: str, start: int, stop: int) -> None:
    job(collection, start, stop)


CHUNK_TEXTS = 32
"""Small, so that a hundred documents keep several threads busy."""


def encode_texts(
    texts: Iterable[Text],
    encoder: TextEncoder,
    threads: int,  # chunks to encode at the same time, >= 1
    folder: Path,
    advance: Callable[[int], None],
    jobs: Mapping[str, EncodeJob],  # name of a component -> its encoding job
) -> EncodedBlocks:
    """Encodes the documents or passages of a delta into the files of one block."""

    def parts() -> Iterator[EncodedTexts]:
        waiting = iter(texts)
        with ThreadPoolExecutor(threads, thread_name_prefix="encode") as pool:
            while chunks := [chunk for _ in range(threads) if (chunk := list(islice(waiting, CHUNK_TEXTS)))]:
                for part in pool.map(partial(encode_unknown, encoder), chunks):
                    yield part
                    advance(len(part.vectors))

    try:
        block = write_block(folder, Block(0, 0), parts())  # how many there are is known at the end
    except EncodeError as error:
        label = next((each.label for each in COMPONENTS if each.name == error.component), "model")
        raise BuildError(f"{error}; export the {label} again") from error
    return EncodedBlocks(folder, [block], encoder.dimensions, {name: job.dtype for name, job in jobs.items()})
