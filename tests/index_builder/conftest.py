"""Running the commands as people do, on the toy model."""

import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click.testing
import onnxruntime
import pytest
from typer.testing import CliRunner

from glow.artifact import IndexRoot
from glow.cli import app
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow_index_builder.input.lines import Line
from glow_index_builder.input.source import Source
from glow_index_builder.input.tables import TextFormat
from tests.made_index import made, opened, write
from tests.program import ROOT

Run = Callable[..., click.testing.Result]
Spawn = Callable[..., subprocess.Popen[bytes]]
Live = Callable[[], Index]
Make = Callable[..., IndexRoot]
Documents = list[dict[str, Any]]
Lines = Iterable[bytes | dict[str, Any]]
LinesFile = Callable[[Lines], Path]
HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
STAGES = ["read", "terms", "encode", "columns", "lexical", "spelling", "index", "recall", "check"]


def names(folder: Path) -> list[str]:
    """What lies in a folder, but for its lock."""
    return sorted({path.name for path in folder.iterdir()} - {".lock"}) if folder.exists() else []


def search(index: Index, query: str, k: int = 5) -> list[str]:
    rows = index[VECTORS].search(index.encoder.encode([index.preprocessor.query(query)]), k)[1][0]
    return [document.id for document in index[STORED_FIELDS].rows(rows.tolist())]


def lines_of(path: Path, most_bytes: int = 1_000, **form: Any) -> list[Line]:
    """What a build reads of a file; `form`: members of `TextFormat`."""
    return list(Source(path.name, path, text=TextFormat(**form)).lines(most_bytes))


def records_of(path: Path, **form: Any) -> list[Any]:
    """Its records, and the faults of lines that are none."""
    return [line.fault or json.loads(line.data) for line in lines_of(path, **form)]


def report_of(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "report.json" if path.is_dir() else path).read_bytes()))


def write_judged(folder: Path, queries: Iterable[tuple[str, str, str, int]]) -> Path:
    """Judged queries: id, text, document and grade of each."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    given = list(queries)
    write(folder / "queries.jsonl", [{"_id": name, "text": text} for name, text, *_ in given])
    rows = "".join(f"{name}\t{document}\t{grade}\n" for name, _, document, grade in given)
    (folder / "qrels" / "dev.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    return folder


@pytest.fixture
def output(tmp_path: Path) -> Path:
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
def live(output: Path) -> Live:
    return lambda: opened(IndexRoot(output))


@pytest.fixture
def root(toy_index: Path, output: Path) -> IndexRoot:
    """A root of its own with the toy index, live."""
    return IndexRoot(Path(shutil.copytree(toy_index, output)))


def maker(folder: Path, **fixed: Any) -> Make:
    def make(name: str, documents: Documents, **options: Any) -> IndexRoot:
        source = folder / f"{name}.jsonl"
        if not source.exists():  # a build goes on only where its input is the same file
            write(source, documents)
        given = {"shard_documents": 16, **fixed, **options}
        return made(given.pop("model"), source, folder / name, **given)

    return make


@pytest.fixture
def spawn() -> Spawn:
    """Starts a command in a process of its own, which heeds SIGINT also where the tests run in the background."""

    def heed() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def start(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "glow", *map(str, arguments)]
        given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(command, cwd=ROOT, preexec_fn=heed, **given)  # type: ignore[call-overload,no-any-return]

    return start


def write_lines(path: Path, lines: Lines) -> Path:
    encoded = (line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    path.write_bytes(b"".join(line + b"\n" for line in encoded))
    return path


@pytest.fixture
def lines_file(tmp_path: Path) -> LinesFile:
    return lambda lines: write_lines(tmp_path / "input.jsonl", lines)


@contextmanager
def limited_disk(size_bytes: int) -> Iterator[None]:
    """A limit on the size of a file stands for a full disk; pytest's own log may be a file, and stays outside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
