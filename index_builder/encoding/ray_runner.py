"""Encodes shards as Ray tasks, on this machine or on a cluster with a shared disk.

A task is one shard. A process keeps its encoder open for the next tasks. If it dies, only its shard fails.
"""

import importlib
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Self

from glow.errors import BuildError, DeviceError
from glow_index_builder.encoding.encode import ShardEncoder, ShardJob
from glow_index_builder.encoding.runner import Outcome, attempt
from glow_index_builder.encoding.shards import Shard

__all__ = ["RayRunner", "start_ray"]

MAX_DEATHS = 3
"""After so many consecutive deaths without a response, the build fails."""
QUEUED = 2
"""Queued tasks per running task: few, but enough that no worker is idle."""
DIED = "the process that encoded it died"
LOOK_S = 1.0
STRAGGLER_S, STRAGGLER_TIMES = 30.0, 5.0
"""The last shards start again on another worker after so many seconds and so many times a shard's usual time."""


class _Tasks:
    """The running tasks, and the durations of finished ones.

    Attributes:
        running: reference -> its shard. A shard may have two tasks, which write equal files.
    """

    def __init__(self) -> None:
        self.running: dict[Any, Shard] = {}
        self._begun: dict[Any, float] = {}
        self._took: list[float] = []

    def begin(self, reference: Any, shard: Shard) -> None:
        """Notes a task."""
        self.running[reference] = shard
        self._begun[reference] = time.monotonic()

    def end(self, reference: Any) -> Shard:
        """Forgets a task; returns its shard."""
        self._took.append(time.monotonic() - self._begun.pop(reference))
        return self.running.pop(reference)

    def of(self, shard: Shard) -> list[Any]:
        """The running tasks of a shard."""
        return [reference for reference, each in self.running.items() if each == shard]

    def late(self) -> list[Shard]:
        """Shards with a single task that has run far longer than the others did."""
        if not self._took:
            return []
        limit = max(STRAGGLER_S, STRAGGLER_TIMES * statistics.median(self._took))
        now = time.monotonic()
        late = [self.running[each] for each, begun in self._begun.items() if now - begun > limit]
        return [shard for shard in late if len(self.of(shard)) == 1]


class RayRunner:
    """Encodes as tasks of Ray.

    Args:
        job: the job; a task requests `job.threads` CPUs, and a GPU if the tower runs on one.
        workers: tasks at the same time, >= 1.
        address: address of a cluster; None: starts Ray here, unless this process has done so.
        encoder: the encoder class, which Ray's processes import by its name.
    """

    def __init__(
        self,
        job: ShardJob,
        workers: int,
        address: str | None = None,
        encoder: type[ShardEncoder] = ShardEncoder,
    ) -> None:
        self._job = job
        self._encoder = encoder
        self._workers = workers
        self._address = address
        self._ray: Any = None
        self._is_ours = False

    def __enter__(self) -> Self:
        self._ray = importlib.import_module("ray")
        if not self._ray.is_initialized():
            start_ray(self._workers * self._job.threads, self._address)
            self._is_ours = True
        available = self._ray.cluster_resources()
        if self._job.device == "cuda" and not available.get("GPU"):
            raise DeviceError("device 'cuda' was asked for, and Ray has no GPU; use --device cpu")
        options = {
            "num_cpus": min(self._job.threads, int(available.get("CPU", 1))),
            "num_gpus": 1 if self._job.device == "cuda" else 0,
            "max_retries": 0,  # the build decides about retries
        }
        self._task = self._ray.remote(**options)(_encode)
        self._job_reference = self._ray.put(self._job)
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_ours:
            self._ray.shutdown()

    def run(self, shards: Sequence[Shard], *, careful: bool = False) -> Iterator[Outcome]:
        """As `Runner.run`; a process has one shard at a time anyway. Slow last shards also start on another worker."""
        waiting = deque(shards)
        tasks = _Tasks()
        limit = self._workers if careful else QUEUED * self._workers
        deaths = 0
        while waiting or tasks.running:
            while waiting and len(tasks.running) < limit:
                self._begin(tasks, waiting.popleft())
            ready, _ = self._ray.wait(list(tasks.running), num_returns=1, timeout=LOOK_S)
            for reference in ready:
                outcome = self._outcome(reference, tasks.end(reference))
                deaths = deaths + 1 if outcome.fault == DIED and not careful else 0
                if deaths >= MAX_DEATHS * self._workers:
                    raise BuildError(
                        "Ray's workers die as soon as they start; see its logs, and give them more memory"
                    )
                copies = tasks.of(outcome.shard)
                if outcome.fault == DIED and copies:
                    continue  # its copy continues
                for copy in copies:
                    tasks.end(copy)
                    self._ray.cancel(copy, force=True)
                yield outcome
            if not waiting:
                for shard in tasks.late():
                    self._begin(tasks, shard)

    def _begin(self, tasks: "_Tasks", shard: Shard) -> None:
        tasks.begin(self._task.remote(self._encoder, self._job_reference, shard), shard)

    def _outcome(self, reference: Any, shard: Shard) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome: Outcome = self._ray.get(reference)
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError):
            return Outcome(shard, fault=DIED)
        except errors.RayTaskError as error:
            raise error.cause from error
        return outcome


def start_ray(cpus: int, address: str | None = None) -> None:
    """Starts Ray on this machine or joins a cluster; Ray's processes get this one's import path.

    Args:
        cpus: CPUs for tasks if Ray is started here.
        address: address of the cluster; None: this machine.
    """
    ray = importlib.import_module("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {"env_vars": {"PYTHONPATH": paths}}
    common: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "runtime_env": environment}
    if address:
        ray.init(address=address, **common)
    else:
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, configure_logging=False, **common)


_open: dict[ShardJob, ShardEncoder] = {}
"""The encoder of the last job, which a Ray process keeps open."""


def _encode(encoder: type[ShardEncoder], job: ShardJob, shard: Shard) -> Outcome:
    """Runs one task."""
    if job not in _open:
        _open.clear()
        _open[job] = encoder.open(job)
    return attempt(_open[job], shard)
