"""The runners that encode shards: threads of this process, local processes or Ray, with one interface.

A runner only reports the outcome of each shard. The caller decides what to retry and which document is to blame
(`index_builder/encoding/schedule.py`), so all runners treat failures alike.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol, Self

from glow.errors import GlowError
from glow_index_builder.encoding.encode import ShardEncoder, ShardJob
from glow_index_builder.encoding.shards import Shard, ShardReport
from glow_index_builder.encoding.text_encoder import EncodeError
from glow_index_builder.memory import release_memory

__all__ = ["Outcome", "Runner", "ThreadRunner", "attempt"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a shard.

    Attributes:
        shard: the shard.
        report: describes its files; None for a probe or a failure.
        fault: why it could not be encoded; None if it was.
    """

    shard: Shard
    report: ShardReport | None = None
    fault: str | None = None


class Runner(Protocol):
    """Encodes shards; use as a context manager, which ends its threads or processes."""

    def __enter__(self) -> Self:
        """Starts its threads or processes, if any."""
        ...

    def __exit__(self, *error: object) -> None:
        """Ends all that it started."""
        ...

    def run(self, shards: Sequence[Shard], *, careful: bool = False) -> Iterator[Outcome]:
        """Encodes shards in any order.

        Args:
            shards: to encode.
            careful: whether a process gets one shard at a time, so that its death has one cause.

        Yields:
            One outcome for each shard, in order of completion.

        Raises:
            BuildError: if workers cannot start.
            GlowError, OSError: if a retry cannot help (the model, the device, the disk).
        """
        ...


def attempt(encoder: ShardEncoder, shard: Shard) -> Outcome:
    """Encodes a shard; an error that a document may have caused becomes a fault, others are raised.

    Raises:
        GlowError, OSError: as `Runner.run`.
    """
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


class ThreadRunner:
    """Encodes in threads of this process: towers run outside of Python's lock while texts are preprocessed.

    Args:
        job: the encoding job.
    """

    def __init__(self, job: ShardJob) -> None:
        self._job = job

    def __enter__(self) -> Self:
        self._encoder = ShardEncoder.open(self._job)
        self._pool = ThreadPoolExecutor(self._job.threads, thread_name_prefix="encode")
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        del self._encoder

    def run(self, shards: Sequence[Shard], *, careful: bool = False) -> Iterator[Outcome]:
        """As `Runner.run`; a document that crashes the process ends the build."""
        waiting: set[Future[Outcome]] = {self._pool.submit(attempt, self._encoder, shard) for shard in shards}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
