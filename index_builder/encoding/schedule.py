"""Encodes the corpus in blocks: keeps finished ones, encodes the others and rejects only documents that fail.

A failed block is tried once more, by itself. If it fails again, it is halved until single documents are found that
fail alone. The whole block is then encoded without them, so its vectors do not depend on the search. A way to encode
blocks (threads, a child process, Ray) only reports the fault of each.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from glow.errors import BuildError
from glow.index import COMPONENTS, EncodeJob
from glow_index_builder.encoding.blocks import (
    Block,
    BlockEncoder,
    EncodedBlocks,
    encode_block,
    open_encoder,
    read_block,
    write_block,
)
from glow_index_builder.encoding.known import Text, encode_unknown
from glow_index_builder.encoding.text_encoder import EncodedTexts, EncodeError, TextEncoder

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
    """Halves blocks until the documents that fail alone are found, and adds them and their causes to `poison`.

    A document is blamed if it fails alone twice: a worker may die for another reason.
    """

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
