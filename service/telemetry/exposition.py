"""The response of `/metrics`: the metrics of all workers, from any worker, and metrics that are computed on request.

A single process keeps its metrics in memory. Several processes write theirs to memory-mapped files in one folder, and the
requested worker sums them. `prometheus_client` chooses between the two by an environment variable, when it is imported.
The supervisor makes the folder, sets the variable and repeats the choice before it forks a worker (`metrics_folder`).
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, generate_latest, values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

__all__ = ["CREATED", "FOLDER_VARIABLE", "INDEX_INFO", "exposition", "metrics_folder"]

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CREATED = "glow_index_created_timestamp_seconds"
INDEX_INFO = "glow_index_info"
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - the folder made in it is private (mode 0700) and of a random name


@contextmanager
def metrics_folder(workers: int) -> Iterator[None]:
    """Makes processes that start in the block share their metrics through a private folder.

    The folder is in memory, if the system supports it: a write to a mapped file on a full disk would kill the
    process.

    Args:
        workers: number of workers; one worker needs no folder.
    """
    if workers == 1:
        yield
        return
    parent = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK | os.X_OK) else None
    folder = tempfile.mkdtemp(prefix=f"glow-metrics-{os.getpid()}-", dir=parent)
    before = os.environ.get(FOLDER_VARIABLE)
    os.environ[FOLDER_VARIABLE] = folder
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if before is None:
            del os.environ[FOLDER_VARIABLE]
        else:
            os.environ[FOLDER_VARIABLE] = before
        values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
        shutil.rmtree(folder, ignore_errors=True)


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics in Prometheus's text format; takes about two milliseconds, plus one per worker.

    Args:
        registry: registry of this process.
    """
    if values.ValueClass is values.MutexValue:
        families = [*registry.collect()]
        processes = {pid: _process(pid) for pid in (os.getpid(),)}
    else:
        folder = Path(os.environ[FOLDER_VARIABLE])
        processes = {pid: _process(pid) for pid in _pids(folder)}
        _forget_dead(folder, [pid for pid, found in processes.items() if found is None])
        # A starting worker may have made a file without writing to it.
        files = [str(path) for path in folder.glob("*.db") if _size(path)]
        families = [*MultiProcessCollector.merge(files)]  # type: ignore[no-untyped-call]
    alive = {pid: found for pid, found in processes.items() if found is not None}
    return generate_latest(_Families([*_current(families), *_processes(alive)]))


class _Families:
    """Collected families, in the form that `generate_latest` reads."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _current(families: list[Metric]) -> Iterator[Metric]:
    """The families without outdated series, and with the age of the index."""
    for family in families:
        if family.name in (CREATED, INDEX_INFO):
            # Shared files keep all series; those of an index that is no longer live are 0.
            family.samples = [sample for sample in family.samples if sample.value]
        yield family
        if family.name == CREATED:
            age = GaugeMetricFamily("glow_index_age_seconds", "Time since the live index was built.")
            for sample in family.samples:
                age.add_metric([], max(time.time() - sample.value, 0.0))
            yield age


@dataclass(frozen=True, slots=True)
class _Process:
    """A process: private memory, shared memory (mapped files), CPU time in seconds."""

    private_bytes: int
    shared_bytes: int
    cpu_seconds: float


def _process(pid: int) -> _Process | None:
    """Figures of a process from the kernel; None if it has ended."""
    try:
        sizes = Path(f"/proc/{pid}/statm").read_bytes().split()
        # The command's name may contain any character; the fields after its closing parenthesis are regular.
        times = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    resident, shared = int(sizes[1]), int(sizes[2])
    if not resident:
        return None  # it has ended, and its parent has not waited for it yet
    page, ticks = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    return _Process((resident - shared) * page, shared * page, (int(times[11]) + int(times[12])) / ticks)


def _processes(found: dict[int, _Process]) -> Iterator[Metric]:
    workers = GaugeMetricFamily("glow_workers", "Processes that serve.", value=len(found))
    memory = GaugeMetricFamily(
        "glow_process_resident_bytes",
        "Memory of one worker: its own (private), and files that workers map together (shared).",
        labels=("pid", "kind"),
    )
    cpu = CounterMetricFamily("glow_process_cpu_seconds", "CPU time of one worker.", labels=("pid",))
    for pid, process in sorted(found.items()):
        memory.add_metric([str(pid), "private"], process.private_bytes)
        memory.add_metric([str(pid), "shared"], process.shared_bytes)
        cpu.add_metric([str(pid)], process.cpu_seconds)
    yield from (workers, memory, cpu)


def _pids(folder: Path) -> set[int]:
    """All processes that wrote into the folder, whose files are named `…_PID.db`."""
    return {int(path.stem.rpartition("_")[2]) for path in folder.glob("*.db")}


def _forget_dead(folder: Path, pids: list[int]) -> None:
    """Removes the gauges of ended processes; their counters stay, so that sums never decrease."""
    for pid in pids:
        with suppress(FileNotFoundError):  # another worker removed them at the same time
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
