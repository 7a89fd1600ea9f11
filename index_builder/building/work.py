"""The finished steps of a build on disk, so that the same command can resume it.

The directory `.work/<key>/` in the index root belongs to one input, model and set of options. Each step is a
directory in it: written under a name that begins with a dot, synced and renamed. Its `step.json` records the
sizes and hashes of its files. Only builds read these files.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from glow import __version__
from glow.artifact import LOCK_FILE, WORK_FOLDER, FileRecord, RootLock, file_records, sync
from glow.errors import BuildError, BusyError, GlowError, ReadOnlyError
from glow.index import Rules
from glow.runtime import Model
from glow_index_builder.input import Source
from glow_index_builder.options import CommonOptions
from glow_index_builder.progress import Stages

FORMAT = 5
"""Format version of the work directory; a build does not resume another format."""
NO_MATTER = ("source", "threads")
"""Parameters that may differ between a build and its resumption; the key has the files of `source` instead."""
KEY_CHARACTERS = 24


def key_of(
    options: CommonOptions,
    sources: Sequence[Source],
    model: Model,
    rules: Mapping[str, Rules],  # name of each component to build -> its rules
) -> str | None:
    """Names a build's work directory; builds with equal keys can resume each other.

    Returns hexadecimal digits; None if an input is a pipe, which can be read only once.

    Files are compared by path, size and modification time, not by content.
    """
    inputs = [source.identity for source in sources]
    if None in inputs:
        return None
    parameters = {key: value for key, value in options.parameters().items() if key not in NO_MATTER}
    hashes = {name: dict(each.hashes) for name, each in rules.items()}
    parts = [FORMAT, __version__, model.hash, hashes, inputs, parameters]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:KEY_CHARACTERS]


STEP_FILE = "step.json"
PASSING = "once-"
"""First character of the key of a build that cannot resume, because its input can be read only once."""
RESUME_HINT = "finished steps are kept; run the same command again to resume"


class Step:
    """One step of a build, finished or in progress."""

    def __init__(
        self, folder: Path, values: dict[str, Any], files: dict[str, FileRecord], *, is_done: bool
    ) -> None:
        self.folder = folder
        self.values = values
        self.files = files  # path in the folder -> size and SHA-256, once it is done
        self.is_done = is_done

    def link(self, target: Path, *names: str) -> dict[str, FileRecord]:
        """Links the files of the step into another directory; only those below `names`, if any are given.

        Returns path in the directory -> size and SHA-256 of each file that was linked, not copied.
        """
        linked = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if not path.is_file() or name.as_posix() == STEP_FILE or (names and name.parts[0] not in names):
                continue
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, target / name)
            except OSError:  # a disk without hard links
                shutil.copyfile(path, target / name)
            else:
                linked[name.as_posix()] = self.files[name.as_posix()]
        return linked


class WorkFolder:
    """The steps of one build."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_kept = False

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Yields a step: `is_done`, or the block does it by writing into `folder` and setting `values`."""
        folder = self.path / name
        if done := _read_step(folder):
            yield done
            return
        shutil.rmtree(folder, ignore_errors=True)
        partial = self.path / f".{name}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        made = Step(partial, {}, {}, is_done=False)
        yield made
        made.files = file_records(partial)
        files = {file: record.model_dump() for file, record in made.files.items()}
        (partial / STEP_FILE).write_text(
            json.dumps({"files": files, "values": made.values}, indent=1), encoding="utf-8"
        )
        for path in partial.rglob("*"):
            sync(path)
        sync(partial)
        partial.rename(folder)
        sync(self.path)
        made.folder = folder

    @contextmanager
    def counting_kills(self, name: str) -> Iterator[int]:
        """Yields how many earlier runs were killed within this block."""
        count = self.path / f".{name}-kills"
        kills = len(count.read_bytes()) if count.exists() else 0
        with count.open("ab") as file:
            file.write(b"x")
        try:
            yield kills
        except BaseException:
            count.write_bytes(b"x" * kills)
            raise
        count.unlink()

    @property
    def has_progress(self) -> bool:
        """Whether it holds anything worth keeping."""
        return any(not each.name.startswith(".") for each in self.path.iterdir())


@contextmanager
def open_work(
    root: Path,
    key: str | None,  # names the build; None: it cannot resume, because its input is a pipe
    *,
    resume: bool,
) -> Iterator[WorkFolder]:
    """Opens the work directory of a build for a block that makes the version, and then removes it.

    After an interrupt or a temporary failure (a full disk) it stays, so that the same command can resume. After input
    or options that can never be built it is removed.
    """
    parent = root / WORK_FOLDER
    _remove_passing(parent)
    work = WorkFolder(parent / (key or PASSING + secrets.token_hex(6)))
    with _claimed(work.path):
        if not resume:
            _clear(work.path)
        try:
            yield work
        except BaseException as error:
            work.is_kept = key is not None and _may_pass(error) and work.has_progress
            raise
        finally:
            if not work.is_kept:
                _remove(work.path)


def _may_pass(error: BaseException) -> bool:
    """Whether the same command may succeed later."""
    if isinstance(error, BuildError):
        return isinstance(error.__cause__, OSError)
    return isinstance(error, BusyError | ReadOnlyError) or not isinstance(error, GlowError)


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Locks a directory, which is created if it is missing."""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(RootLock(folder).hold(0.0))
            except BusyError as error:
                raise BusyError(f"this build runs already: {error}") from error
            if (folder / LOCK_FILE).exists():
                break
            stack.pop_all().close()  # its holder removed it after this process opened it and before it locked it
        yield


def _remove_passing(parent: Path) -> None:
    """Removes the remains of killed builds that read a pipe."""
    for folder in parent.glob(f"{PASSING}*"):
        try:
            with RootLock(folder).hold(0.0):
                _remove(folder)
        except (BusyError, ReadOnlyError):
            continue


def _clear(folder: Path) -> None:
    """Removes everything except the lock."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK_FILE:
            path.unlink()


def _remove(folder: Path) -> None:
    """Removes a work directory, and `.work` if it was the last."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.rmdir()
    except OSError:
        return


def _read_step(folder: Path) -> Step | None:
    """A finished step; None if it is not finished or a file has changed."""
    try:
        step = json.loads((folder / STEP_FILE).read_bytes())
        records = {name: record for name, record in file_records(folder).items() if name != STEP_FILE}
        if {name: record.model_dump() for name, record in records.items()} != step["files"]:
            return None
        return Step(folder, step["values"], records, is_done=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


Advance = Callable[[int], None]


class StagedWork:
    """Runs steps one after another."""

    def __init__(self, work: WorkFolder, stages: Stages) -> None:
        self.work = work
        self.stages = stages
        # step -> its result, in order; a step repeated without the left-out documents replaces the earlier
        # one
        self.done: dict[str, Step] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """Directories of the finished steps, newest first."""
        return tuple(step.folder for step in reversed(self.done.values()))

    @contextmanager
    def step(
        self, name: str, total: int | None = None, unit: str = "", instead_of: str = ""
    ) -> Iterator[tuple[Step, Advance]]:
        """Runs a step as a stage; yields the step and a function to report progress to."""
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
