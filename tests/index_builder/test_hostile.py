"""Hostile and damaged input through the whole command: one line, nothing outside, nothing left, little memory."""

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from glow.errors import InputError
from glow_index_builder.input import parsers
from tests.index_builder.conftest import Run
from tests.index_builder.damage_files import FORMATS, whole_file
from tests.index_builder.hostile_inputs import INPUTS, LONG, MB, place_of
from tests.program import answer_of, python

MOST_MB = 512.0
Outcomes = dict[str, dict[str, Any]]


def outcomes_of(scratch: Path, model: Path, *flags: str) -> Outcomes:
    """By a process of its own: its memory is theirs."""
    for name, (suffix, write, *_) in (LONG if flags else INPUTS).items():
        (scratch / name).mkdir()
        write(place_of(scratch, name, suffix))
        assert place_of(scratch, name, suffix).stat().st_size < 32 * MB
    done = python("-m", "tests.index_builder.hostile_inputs", scratch, model, *flags)
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Outcomes:
    return outcomes_of(tmp_path_factory.mktemp("hostile"), toy_model)


@pytest.mark.parametrize("name", INPUTS)
def test_hostile_input_ends_in_one_line_and_leaves_only_its_rejects(name: str, outcomes: Outcomes) -> None:
    outcome, (_, _, code, said) = outcomes[name], INPUTS[name]
    assert outcome["exit"] == code and said in outcome["said"], outcome
    assert outcome["said"].startswith("glow: error (") and outcome["said"].count("\n") == 1, outcome
    assert len(outcome["said"]) < 3_000, outcome
    assert all(path.startswith("root/rejects-") for path in outcome["left"])
    assert len(outcome["left"]) <= (1 if code == 4 else 0)


def test_hostile_input_takes_little_memory(outcomes: Outcomes) -> None:
    assert max(sum(each["peaks_mb"]) for each in outcomes.values()) <= MOST_MB
    assert not Path("/tmp/escaped").exists()  # noqa: S108 - must not be written


@pytest.mark.slow
def test_hostile_input_that_takes_time_takes_no_memory(tmp_path: Path, toy_model: Path) -> None:
    outcomes = outcomes_of(tmp_path, toy_model, "--long")
    assert outcomes.keys() == LONG.keys()
    for outcome in outcomes.values():
        assert outcome["exit"] in (0, 4), outcome
        # Lines that begin with "read: " say how far it is.
        told = [line for line in outcome["said"].splitlines() if not line.startswith("read: ")]
        assert outcome["exit"] == 0 or (len(told) == 1 and told[0].startswith("glow: error (")), outcome
        assert sum(outcome["peaks_mb"]) <= MOST_MB


@pytest.mark.parametrize("kind", FORMATS)
def test_damage_ends_in_rows_or_in_one_error(kind: str, tmp_path: Path) -> None:
    count = 300 if kind in ("arrow", "arrows") else 60
    ends = answer_of("tests.index_builder.damage_files", tmp_path, kind, count)
    assert sum(ends.values()) == count
    assert ends["read"] > 0
    assert kind not in ("arrow", "arrows", "parquet") or ends["refused"] > 0


@pytest.mark.parametrize("kind", ["arrow", "arrows"])
def test_a_build_of_a_damaged_arrow_file_ends_in_one_line(build: Run, tmp_path: Path, kind: str) -> None:
    """An offset of a string beyond its buffer: what lies there must neither be read nor end the command."""
    path = tmp_path / f"bad.{kind}"
    data = bytearray(whole_file(tmp_path, kind))
    offsets = b"".join(each.to_bytes(4, "little") for each in (0, 2, 4, 6))  # of d0, d1, d2
    place = data.index(offsets)
    data[place + 4 : place + 8] = (0x40000000).to_bytes(4, "little")
    path.write_bytes(data)
    done = build(path)
    said = f"glow: error (invalid_input): bad.{kind} is damaged or not an Arrow file, in batch 0: "
    assert done.exit_code == 2 and done.stderr.startswith(said) and done.stderr.count("\n") == 1


def test_a_reader_that_crashes_is_an_error_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is known that crashes it, so a reader that ends itself stands for one."""
    start = parsers._start
    crash = ("-c", f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})")
    monkeypatch.setattr(parsers, "_start", lambda kind: start(kind, crash))
    said = r"x\.parquet is damaged, after row 0: its reader crashed \(SIGSEGV\)"
    with pytest.raises(InputError, match=said):
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
    assert "97 documents" in done.stdout
    assert "3 lines rejected: 2 x cannot be read, 1 x longer than" in done.stdout


def test_a_time_zone_that_is_none_costs_its_rows(build: Run, tmp_path: Path) -> None:
    kind = pyarrow.timestamp("us", tz="No/Such")
    path = tmp_path / "zone.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"_id": ["a"], "day": pyarrow.array([1], kind)}), path)
    done = build(path)
    assert done.exit_code == 4 and done.stderr.count("\n") == 1, done.stderr
    assert "1 x cannot be read" in done.stderr and "No/Such" in done.stderr
