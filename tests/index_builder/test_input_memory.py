"""Small files that unpack to much end in one line or cost their rows, in bounded memory; of each process, by the system."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

ROOT = Path(__file__).parents[2]
MOST_MB = 512
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
    assert sum(outcome["peaks_mb"]) <= MOST_MB, outcome["peaks_mb"]
