"""The steps of a build as visible stages; a step that an earlier run finished is read back, not repeated."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from glow_index_builder.building.work import Step, WorkFolder
from glow_index_builder.progress import Stages

__all__ = ["Advance", "StagedWork"]

Advance = Callable[[int], None]


class StagedWork:
    """Runs steps one after another.

    Args:
        work: keeps the steps.
        stages: progress and times.

    Attributes:
        work, stages: as given.
        done: step -> its result, in order; a step repeated without the left-out documents replaces the earlier one.
    """

    def __init__(self, work: WorkFolder, stages: Stages) -> None:
        self.work = work
        self.stages = stages
        self.done: dict[str, Step] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """Directories of the finished steps, newest first."""
        return tuple(step.folder for step in reversed(self.done.values()))

    @contextmanager
    def step(
        self, name: str, total: int | None = None, unit: str = "", instead_of: str = ""
    ) -> Iterator[tuple[Step, Advance]]:
        """Runs a step as a stage; yields the step and a function to report progress to.

        Args:
            name: of both.
            total, unit: as for `Stages.stage`.
            instead_of: the step whose files these replace; empty: none.
        """
        with self.work.step(name) as step:
            if step.is_done:
                took = step.values["stage"]
                self.stages.done_before(name, took["seconds"], took["peak_memory_bytes"])
                yield step, lambda amount: None
            else:
                with self.stages.stage(name, total, unit) as advance:
                    yield step, advance
                peak = self.stages.peaks[name]
                step.values["stage"] = {"seconds": self.stages.seconds[name], "peak_memory_bytes": peak}
        self.done[instead_of or name] = step
