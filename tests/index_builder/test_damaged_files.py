"""A damaged file of documents is read or refused in one line, whatever its format; it never ends a process."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest

from glow.errors import InputError
from glow_index_builder.input import parsers
from tests.index_builder.conftest import Run
from tests.index_builder.damage_files import FORMATS, good

ROOT = Path(__file__).parents[2]
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
