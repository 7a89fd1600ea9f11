"""Running the commands as people do, on the toy model."""

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import click.testing
import pytest
from typer.testing import CliRunner

from glow.artifact import IndexRoot
from glow.cli import app
from glow.index import Index

ROOT = Path(__file__).parents[2]
Run = Callable[..., click.testing.Result]
Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An index root that does not exist yet."""
    return tmp_path / "index"


@pytest.fixture
def run() -> Run:
    """Runs a command in this process: `run("build", "--input", path, …)`."""

    def invoke(*arguments: object, stdin: bytes | None = None) -> click.testing.Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)

    return invoke


@pytest.fixture
def build(run: Run, toy_model: Path, output: Path) -> Run:
    """Builds from an input with the toy model: `build(path, "--index", "flat")`."""

    def invoke(source: object, *options: object, stdin: bytes | None = None) -> click.testing.Result:
        fixed = ("--model", toy_model, "--index-root", output, "--threads", 1)
        return run("build", "--input", source, *fixed, *options, stdin=stdin)

    return invoke


@pytest.fixture
def live(output: Path) -> Callable[[], Index]:
    """Opens the live version."""

    def opened() -> Index:
        root = IndexRoot(output)
        return Index.open(root.folder(root.current()))

    return opened


@pytest.fixture
def spawn() -> Spawn:
    """Starts a command in a process of its own, which heeds SIGINT also where the tests run in the background."""

    def heed() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def start(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "index_builder", *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        options.setdefault("preexec_fn", heed)
        return subprocess.Popen(command, cwd=ROOT, **pipes, **options)  # type: ignore[call-overload,no-any-return]

    return start


def write_lines(path: Path, lines: Iterable[bytes | dict[str, object]]) -> Path:
    """Writes lines as they are, and objects as JSON."""
    encoded = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    path.write_bytes(b"".join(line + b"\n" for line in encoded))
    return path


@pytest.fixture
def lines_file(tmp_path: Path) -> Callable[[Iterable[bytes | dict[str, object]]], Path]:
    """Writes lines to a file and gives its path."""
    return lambda lines: write_lines(tmp_path / "input.jsonl", lines)


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    """Waits until a condition holds, a minute at most."""

    def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 60.0
        while not condition():
            assert time.monotonic() < end, "nothing happened in time"
            time.sleep(0.01)

    return wait


@contextmanager
def limited_disk(size_bytes: int) -> Iterator[None]:
    """A limit on the size of a file stands for a full disk; pytest's own log may be a file, and stays outside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def disk_of() -> Callable[[int], AbstractContextManager[None]]:
    """Stands for a full disk: no file grows beyond so many bytes in its block."""
    return limited_disk
