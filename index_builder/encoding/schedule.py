"""Encodes the corpus in shards: keeps finished ones, encodes the others and rejects only documents that fail.

A failed shard is tried once more, by itself. If it fails again, it is halved until single documents are found that
fail alone. The whole shard is then encoded without them, so its vectors do not depend on the search.
"""

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from glow.errors import BuildError, ConfigError, DependencyError
from glow.index import EncodeJob, ImportRows, RangeTask
from glow_index_builder.encoding.files import EncodedFiles
from glow_index_builder.encoding.ray_tasks import RayImport, in_ray
from glow_index_builder.encoding.shards import (
    Outcome,
    Run,
    Shard,
    ShardJob,
    ShardReport,
    in_child,
    in_threads,
    read_report,
)
from glow_index_builder.options import CommonOptions

FIRST_FAILURES = 8
"""If so many shards fail before one succeeds, the documents are not the cause."""
MAX_POISONOUS = 1_000
LAST_TRIES = 3


@dataclass(frozen=True, slots=True)
class EncodedShards:
    """All finished shards of a build."""

    files: EncodedFiles  # their vectors and records
    shards: list[Shard]  # in order, each with the documents that it skipped
    rows: list[int]  # number of vectors of each
    truncated: Mapping[str, int]  # field -> number of documents or passages whose field was truncated
    resumed: int  # number of shards from earlier runs
    failures: int  # number of retries after a failure
    documents: int  # documents encoded by this run
    seconds: float  # encoding time of all runs and workers together
    peak_memory_bytes: int  # peak memory of the largest encoding process

    @property
    def poison(self) -> dict[int, str]:
        """Row of each document that cannot be encoded -> the cause, ascending."""
        return {row: reason for shard in self.shards for row, reason in shard.skip}


def encode_shards(
    encoding: AbstractContextManager[Run],
    plan: list[Shard],
    folder: Path,
    dimensions: int,
    advance: Callable[[int], None],
    jobs: Mapping[str, EncodeJob] | None = None,  # name of a component -> its encoding job
) -> EncodedShards:
    """Encodes the unfinished shards."""
    folder.mkdir(exist_ok=True)
    jobs = jobs or {}
    done: dict[int, ShardReport] = {}
    for shard in plan:
        if report := read_report(folder, shard, dimensions, jobs):
            done[shard.start] = _slim(report)
            advance(shard.documents)
    resumed = len(done)
    missing = [shard for shard in plan if shard.start not in done]
    failures = 0
    if missing:
        with encoding as run:
            search = _Search(run, advance)
            search.encode(missing)
        done |= search.done
        failures = search.failures
    reports = [done[shard.start] for shard in plan]
    rows, truncated = [report.texts.rows for report in reports], Counter[str]()
    for report in reports:
        truncated.update(report.texts.truncated)
    dtypes = {name: job.dtype for name, job in jobs.items()}
    return EncodedShards(
        files=EncodedFiles(folder, [shard.name for shard in plan], rows, dimensions, dtypes),
        shards=[replace(shard, skip=report.skipped) for shard, report in zip(plan, reports, strict=True)],
        rows=rows,
        truncated=truncated,
        resumed=resumed,
        failures=failures,
        documents=sum(shard.stop - shard.start for shard in missing),
        seconds=sum(report.texts.seconds for report in reports),
        peak_memory_bytes=max((report.texts.peak_memory_bytes for report in reports), default=0),
    )


class _Search:
    """Encodes shards and searches for the documents that make them fail."""

    def __init__(self, run: Run, advance: Callable[[int], None]) -> None:
        self._run_shards = run
        self._advance = advance
        self._poison: dict[int, str] = {}
        self.done: dict[int, ShardReport] = {}
        self.failures = 0

    def encode(self, shards: list[Shard]) -> None:
        """Encodes shards; in those that fail twice, searches for the documents to blame."""
        failed = self._run(shards, careful=False)
        failed = self._run([outcome.shard for outcome in failed], careful=True)
        for _ in range(LAST_TRIES):
            if not failed:
                return
            self._find_poison(failed)
            failed = self._run([self._without_poison(outcome.shard) for outcome in failed], careful=True)
        if failed:
            raise BuildError(
                f"documents {failed[0].shard.start} to {failed[0].shard.stop - 1} cannot be encoded together, though "
                f"each can: {failed[0].fault}; build with a smaller --encode-batch-documents or fewer --threads"
            )

    def _run(self, shards: list[Shard], *, careful: bool) -> list[Outcome]:
        """Encodes shards and returns the failures, in order."""
        failed: list[Outcome] = []
        for outcome in self._run_shards(shards, careful) if shards else ():
            if outcome.fault is None:
                if outcome.report is not None:
                    self.done[outcome.shard.start] = _slim(outcome.report)
                    self._advance(outcome.shard.documents)
                continue
            failed.append(outcome)
            self.failures += not outcome.shard.is_probe
            if not self.done and not careful and len(failed) >= FIRST_FAILURES:
                raise BuildError(
                    f"the first {len(failed)} shards failed, so it is not the documents: {outcome.fault}; "
                    "export the model again, or see that the memory is enough"
                )
        return sorted(failed, key=lambda outcome: outcome.shard.start)

    def _find_poison(self, failed: Iterable[Outcome]) -> None:
        """Halves shards until the documents that fail alone are found."""
        suspects = [replace(outcome.shard, is_probe=True) for outcome in failed]
        while suspects:
            alone = [shard for shard in suspects if shard.stop - shard.start == 1]
            halves = [half for shard in suspects if shard.stop - shard.start > 1 for half in _halves(shard)]
            # A document is blamed if it fails alone twice: a worker may die for another reason.
            for outcome in self._run(alone, careful=True):
                self._poison[outcome.shard.start] = outcome.fault or ""
            if len(self._poison) > MAX_POISONOUS:
                raise BuildError(
                    f"more than {MAX_POISONOUS} documents cannot be encoded; the last: "
                    f"{next(reversed(self._poison.values()))}"
                )
            suspects = [outcome.shard for outcome in self._run(halves, careful=True)]

    def _without_poison(self, shard: Shard) -> Shard:
        rows = (row for row in range(shard.start, shard.stop) if row in self._poison)
        return replace(shard, skip=tuple((row, self._poison[row]) for row in rows))


def _halves(shard: Shard) -> tuple[Shard, Shard]:
    """Both halves of a shard of at least two documents, each with its own skipped documents."""
    middle = (shard.start + shard.stop) // 2
    first = tuple(each for each in shard.skip if each[0] < middle)
    second = tuple(each for each in shard.skip if each[0] >= middle)
    return replace(shard, stop=middle, skip=first), replace(shard, start=middle, skip=second)


def _slim(report: ShardReport) -> ShardReport:
    """A copy without per-document data, which would grow with the corpus."""
    return replace(report, texts=replace(report.texts, ids=(), counts={}))


MAX_KILLS = 2
"""After so many runs of a build that were killed while they encoded, a document may be to blame. It can be found only
from another process."""


def start_encoding(options: CommonOptions, job: ShardJob, kills: int) -> AbstractContextManager[Run]:
    """The way in which a build encodes, not started yet."""
    if options.runner == "ray":
        return in_ray(job, options.workers, options.ray_address)
    return in_threads(job) if kills < MAX_KILLS else in_child(job)


def make_spread(options: CommonOptions) -> Callable[[RangeTask], ImportRows] | None:
    """A function that gives a row task to Ray's workers; None if this process runs it."""
    if options.runner != "ray":
        return None
    return lambda task: RayImport(task, options.workers, options.ray_address)


def require_runner(options: CommonOptions) -> None:
    """Refuses Ray where it is not installed, and options that need it without it, before any work."""
    if options.runner != "ray":
        if options.ray_address or options.workers > 1:
            raise ConfigError("--ray-address and --workers need --runner ray")
        return
    try:
        importlib.import_module("ray")
    except ImportError as error:
        raise DependencyError(
            "--runner ray needs the package ray: install the extra `scale` (pip install 'glow-retrieval[scale]')"
        ) from error
