"""Hostile and damaged input through the whole command: one line, nothing outside, nothing left, little memory."""

import gzip
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from glow.errors import InputError
from glow_index_builder.input import parsers
from tests.index_builder.conftest import Run
from tests.index_builder.damage_files import FORMATS, good
from tests.index_builder.hostile_inputs import INPUTS, LONG

ROOT = Path(__file__).parents[2]
MOST_MB = 512.0
Outcomes = dict[str, dict[str, Any]]


def outcomes_of(scratch: Path, model: Path, *flags: str) -> Outcomes:
    """By a process of its own: its memory is theirs."""
    command = [sys.executable, "-m", "tests.index_builder.hostile_inputs", str(scratch), str(model), *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Outcomes:
    return outcomes_of(tmp_path_factory.mktemp("hostile"), toy_model)


def require_one_line(outcome: dict[str, Any], codes: tuple[int, ...]) -> None:
    assert outcome["exit"] in codes, outcome
    assert outcome["said"].startswith("glow: error (") and outcome["said"].count("\n") == 1, outcome
    assert len(outcome["said"]) < 3_000, outcome


@pytest.mark.parametrize("name", INPUTS)
def test_hostile_input_ends_in_one_line_and_leaves_only_its_rejects(name: str, outcomes: Outcomes) -> None:
    require_one_line(outcomes[name], (2, 4))
    assert all(path.startswith("root/rejects-") for path, _ in outcomes[name]["left"])
    assert len(outcomes[name]["left"]) <= (1 if outcomes[name]["exit"] == 4 else 0)


def test_hostile_input_takes_little_memory(outcomes: Outcomes) -> None:
    assert max(each["peak_mb"] for each in outcomes.values()) <= MOST_MB
    assert not Path("/tmp/escaped").exists()  # noqa: S108 - must not be written


@pytest.mark.slow
def test_hostile_input_that_takes_time_takes_no_memory(tmp_path: Path, toy_model: Path) -> None:
    outcomes = outcomes_of(tmp_path, toy_model, "--long")
    assert outcomes.keys() == LONG.keys()
    for outcome in outcomes.values():
        assert outcome["exit"] in (0, 4), outcome
        told = [
            line for line in outcome["said"].splitlines() if not line.startswith("read: ")
        ]  # how far it is
        assert outcome["exit"] == 0 or (len(told) == 1 and told[0].startswith("glow: error (")), outcome
        assert outcome["peak_mb"] <= MOST_MB


COUNTS = {"arrow": 300, "arrows": 300}
FEW = 60


@pytest.mark.parametrize("kind", FORMATS)
def test_damage_ends_in_rows_or_in_one_error(kind: str, tmp_path: Path) -> None:
    count = COUNTS.get(kind, FEW)
    command = [sys.executable, "-m", "tests.index_builder.damage_files", str(tmp_path), kind, "0", str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-2_000:])
    ends = json.loads(done.stdout)
    assert sum(ends.values()) == count
    assert ends["read"] > 0
    assert kind not in ("arrow", "arrows", "parquet") or ends["refused"] > 0


@pytest.mark.parametrize("kind", ["arrow", "arrows"])
def test_a_build_of_a_damaged_arrow_file_ends_in_one_line(build: Run, tmp_path: Path, kind: str) -> None:
    """An offset of a string beyond its buffer: what lies there must neither be read nor end the command."""
    path = tmp_path / f"bad.{kind}"
    data = bytearray(good(tmp_path, kind))
    offsets = b"".join(each.to_bytes(4, "little") for each in (0, 2, 4, 6))  # of d0, d1, d2
    place = data.index(offsets)
    data[place + 4 : place + 8] = (0x40000000).to_bytes(4, "little")
    path.write_bytes(data)
    done = build(path)
    assert done.exit_code == 2
    assert done.stderr.startswith(
        f"glow: error (invalid_input): bad.{kind} is damaged or not an Arrow file, in batch 0: "
    )
    assert done.stderr.count("\n") == 1


def test_a_reader_that_crashes_is_an_error_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is known that crashes it, so a reader that ends itself stands for one."""
    start = parsers._start
    crash = ("-c", f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})")
    monkeypatch.setattr(parsers, "_start", lambda kind: start(kind, crash))
    with pytest.raises(
        InputError, match=r"x\.parquet is damaged, after row 0: its reader crashed \(SIGSEGV\)"
    ):
        list(parsers.rows_of("parquet", "x.parquet", tmp_path / "x.parquet", 100))


def test_a_value_that_cannot_be_read_costs_its_row(build: Run, tmp_path: Path) -> None:
    rows = {
        "_id": [f"d{number}" for number in range(100)],
        "text": [b"bees"] * 40 + [b"\xff\xfe"] + [b"ants"] * 58 + [b"x" * 2_000_000],
        "day": pyarrow.array([0] * 60 + [2**62] + [1] * 39, pyarrow.int64()).cast(pyarrow.timestamp("us")),
    }
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table(rows), path)
    done = build(path)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("97 documents") or "\n97 documents" in done.stdout
    assert "3 lines rejected: 2 x cannot be read, 1 x longer than" in done.stdout


def test_a_time_zone_that_is_none_costs_its_rows(build: Run, tmp_path: Path) -> None:
    kind = pyarrow.timestamp("us", tz="No/Such")
    path = tmp_path / "zone.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"_id": ["a"], "day": pyarrow.array([1], kind)}), path)
    done = build(path)
    assert done.exit_code == 4 and done.stderr.count("\n") == 1, done.stderr
    assert "1 x cannot be read" in done.stderr and "No/Such" in done.stderr


MOST_BUILD_MB = 512
PROGRAM = """
import json, pathlib, resource, sys
from typer.testing import CliRunner
from glow.cli import app
done = CliRunner().invoke(app, sys.argv[1:])
status = pathlib.Path("/proc/self/status").read_text().split()
peaks = [int(status[status.index("VmHWM:") + 1]) / 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024]
print(json.dumps({"exit": done.exit_code, "said": done.output, "peaks_mb": peaks}))
"""
MB = 1 << 20
LARGE = 288 * MB


def csv_of(path: Path, chunk: bytes, start: bytes, end: bytes) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"_id,text\nd0,bees\n" + start)
        for _ in range(24):
            file.write(chunk * (MB // len(chunk)))
        file.write(end + b"d2,ants\n")


def zeros(size: int) -> pyarrow.Array:
    """One value of so many zeros, which takes no memory here until it is written."""
    ends = pyarrow.py_buffer((0).to_bytes(4, "little") + size.to_bytes(4, "little"))
    return pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, ends, pyarrow.py_buffer(bytes(size))])


def row(folder: Path) -> Path:
    path = folder / "row.csv.gz"
    csv_of(path, b',"\n"', b"d1", b"\n")
    return path


def cell(folder: Path) -> Path:
    path = folder / "cell.csv.gz"
    csv_of(path, b'\n""', b'd1,"', b'"\n')
    return path


def value(folder: Path) -> Path:
    path = folder / "value.parquet"
    table = pyarrow.table({"_id": ["a"], "text": zeros(LARGE)})
    pyarrow.parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    return path


def values(folder: Path) -> Path:
    path = folder / "values.parquet"
    table = pyarrow.table({"_id": [str(number) for number in range(20)], "text": ["x" * (16 * MB)] * 20})
    pyarrow.parquet.write_table(table, path, compression="zstd")
    return path


def batch(folder: Path) -> Path:
    path = folder / "batch.arrow"
    made = pyarrow.record_batch({"_id": ["a"], "text": zeros(LARGE)})
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with (
        pyarrow.OSFile(str(path), "wb") as sink,
        pyarrow.ipc.new_file(sink, made.schema, options=options) as out,
    ):
        out.write_batch(made)
    return path


TOO_MUCH = "it takes more memory than a reader may have"
CASES = {
    row: (0, "1 x longer than"),
    cell: (0, "1 x longer than"),
    value: (2, TOO_MUCH),
    values: (4, "20 x longer than"),
    batch: (2, TOO_MUCH),
}
"""A file -> how its build ends, and what is said."""


@pytest.mark.parametrize("made", CASES, ids=lambda made: made.__name__)
def test_what_unpacks_to_much_takes_little_memory(
    tmp_path: Path, toy_model: Path, made: Callable[[Path], Path]
) -> None:
    path, (code, said) = made(tmp_path), CASES[made]
    assert path.stat().st_size < MB
    build = (
        "build",
        "--input",
        path,
        "--model",
        toy_model,
        "--threads",
        1,
        "--index-root",
        tmp_path / "index",
    )
    command = [sys.executable, "-c", PROGRAM, *map(str, build), "--max-reject-ratio", "0.97"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["exit"] == code and said in outcome["said"], outcome
    assert sum(outcome["peaks_mb"]) <= MOST_BUILD_MB, outcome["peaks_mb"]
