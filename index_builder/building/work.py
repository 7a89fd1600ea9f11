"""The finished steps of a build on disk, so that the same command can resume it.

The directory `.work/<key>/` in the index root belongs to one input, model and set of options. Each step is a directory
in it, written under a name with a dot, synced and renamed. Its `step.json` has the sizes and hashes of its files.
"""

import hashlib
import json
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glow import __version__
from glow.artifact import LOCK_FILE, WORK_FOLDER, FileRecord, RootLock, file_records, sync
from glow.commands import Advance
from glow.errors import BuildError, BusyError, GlowError, ReadOnlyError
from glow.index import Rules
from glow.runtime import Model
from glow_index_builder.input.source import Source
from glow_index_builder.options import CommonOptions
from glow_index_builder.progress import Stages
from glow_index_builder.versions.writer import disk_errors, link_file

FORMAT = 6
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
    """Names a build's work directory, in hexadecimal digits; builds with equal keys can resume each other.

    Files are compared by path, size and time. None if an input is a pipe, which can be read only once.
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


@dataclass(slots=True)
class Step:
    """One step of a build, finished or in progress."""

    folder: Path
    values: dict[str, Any] = field(default_factory=dict)
    files: dict[str, FileRecord] = field(default_factory=dict)  # path in the folder -> size and SHA-256
    is_done: bool = False
    advance: Advance = lambda count: None  # reports progress

    def link(self, target: Path, *names: str) -> dict[str, FileRecord]:
        """Links its files, or those below `names`, into another directory; returns the records of those not copied."""
        linked = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if not path.is_file() or name.as_posix() == STEP_FILE or (names and name.parts[0] not in names):
                continue
            if link_file(path, target / name):
                linked[name.as_posix()] = self.files[name.as_posix()]
        return linked


class WorkFolder:
    """The steps of one build, which run one after another as stages."""

    def __init__(self, path: Path, stages: Stages) -> None:
        self.path, self.stages = path, stages
        # step -> its result, in order; a step repeated without the left-out documents replaces the earlier one
        self.done: dict[str, Step] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """Directories of the finished steps, newest first."""
        return tuple(step.folder for step in reversed(self.done.values()))

    @contextmanager
    def step(
        self, name: str, total: int | None = None, unit: str = "", instead_of: str = ""
    ) -> Iterator[Step]:
        """Yields a step: `is_done`, or the block does it by writing into `folder` and setting `values`."""
        folder, partial = self.path / name, self.path / f".{name}"
        step = _read_step(folder)
        if step:
            took = step.values["stage"]
            self.stages.done_before(name, took["seconds"], took["peak_memory_bytes"])
            yield step
        else:
            for each in (folder, partial):
                shutil.rmtree(each, ignore_errors=True)
            partial.mkdir(parents=True)
            with self.stages.stage(name, total, unit) as advance:
                step = Step(partial, advance=advance)
                yield step
            took = {"seconds": self.stages.seconds[name], "peak_memory_bytes": self.stages.peaks[name]}
            step.values["stage"] = took
            step.files = file_records(partial)
            files = {file: record.model_dump() for file, record in step.files.items()}
            text = json.dumps({"files": files, "values": step.values}, indent=1)
            (partial / STEP_FILE).write_text(text, encoding="utf-8")
            for path in (*partial.rglob("*"), partial):
                sync(path)
            partial.rename(folder)
            sync(self.path)
            step.folder = folder
        self.done[instead_of or name] = step

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


@contextmanager
def open_work(
    root: Path,
    key: str | None,  # names the build; None: it cannot resume, because its input is a pipe
    stages: Stages,
    *,
    resume: bool,
) -> Iterator[WorkFolder]:
    """Opens the work directory of a build for a block that makes the version, and then removes it.

    After an interrupt or a temporary failure (a full disk) it stays, and a message says so.
    """
    parent, is_kept = root / WORK_FOLDER, False
    for folder in parent.glob(f"{PASSING}*"):  # the remains of killed builds that read a pipe
        with suppress(BusyError, ReadOnlyError), RootLock(folder).hold(0.0):
            _remove(folder)
    work = WorkFolder(parent / (key or PASSING + secrets.token_hex(6)), stages)
    with _claimed(work.path):
        for path in () if resume else list(work.path.iterdir()):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK_FILE:
                path.unlink()
        try:
            with disk_errors(root):
                yield work
        except BaseException as error:
            has_progress = any(not each.name.startswith(".") for each in work.path.iterdir())
            is_kept = key is not None and _may_pass(error) and has_progress
            if is_kept and isinstance(error, KeyboardInterrupt):
                stages.note(RESUME_HINT)
            if is_kept and isinstance(error, BuildError):
                raise BuildError(f"{error}; {RESUME_HINT}") from error.__cause__
            raise
        finally:
            if not is_kept:
                _remove(work.path)


def _may_pass(error: BaseException) -> bool:
    """Whether the same command may succeed later."""
    if isinstance(error, BuildError):
        return isinstance(error.__cause__, OSError | sqlite3.Error)
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


def _remove(folder: Path) -> None:
    """Removes a work directory, and `.work` if it was the last."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


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
