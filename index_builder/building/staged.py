"""The steps of a build as stages that people see: a step that an earlier run finished is read back instead of done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from glow_index_builder.building.work import Step, WorkFolder
from glow_index_builder.progress import Stages

__all__ = ["Advance", "StagedWork"]

Advance = Callable[[int], None]


class StagedWork:
    """Steps one after another.

    Args:
        work: where they are kept.
        stages: progress and times.

    Attributes:
        work, stages: as given.
        done: step -> what it left, in order; one that was done again, without documents that were left out, stands for the one before.
    """

    def __init__(self, work: WorkFolder, stages: Stages) -> None:
        self.work = work
        self.stages = stages
        self.done: dict[str, Step] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """Of the steps that are done, the newest first."""
        return tuple(step.folder for step in reversed(self.done.values()))

    @contextmanager
    def step(
        self, name: str, total: int | None = None, unit: str = "", instead_of: str = ""
    ) -> Iterator[tuple[Step, Advance]]:
        """A step as a stage, with a function that is told what was done.

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
