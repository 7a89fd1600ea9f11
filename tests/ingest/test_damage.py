"""Damaged logs: what cannot be read costs itself, each lost operation is named, and every other one is applied."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glow.ingest import (
    INGEST_FOLDER,
    Accepted,
    IngestLog,
    IngestState,
    OperationId,
    Outcome,
    find_outcome,
    has_log,
    note_outcomes,
    read_accepted,
)

COUNT = 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of thirty operations, of which the texts look like lines of a log."""
    log = IngestLog(tmp_path / INGEST_FOLDER, 1 << 20)
    for number in range(1, COUNT + 1):
        text = f'\n1c291ca3 {{"number": {number + 1}, "at": 5, "kind": "delete", "ids": ["x"]}}\n'
        log.append("upsert", documents=[{"_id": f"d{number}", "text": text, "number": {"number": 3}}])
    return tmp_path / INGEST_FOLDER


def read(folder: Path, state: IngestState | None = None) -> list[Accepted]:
    return list(read_accepted(folder, state or IngestState()))


def file_of(folder: Path) -> Path:
    (path,) = (folder / "log").iterdir()
    return path


def flip(data: bytearray, draw: random.Random) -> set[int]:
    """One bit, which costs the operation whose line it is in at most."""
    place = draw.randrange(len(data))
    number = data.count(b"\n", 0, place) + 1
    data[place] ^= 1 << draw.randrange(8)
    return {number}


def break_line(data: bytearray, draw: random.Random) -> set[int]:
    place = draw.choice([at for at in range(len(data)) if data[at : at + 1] != b"\n"])
    number = data.count(b"\n", 0, place) + 1
    data[place : place + 1] = b"\n"
    return {number}


def join(data: bytearray, draw: random.Random) -> set[int]:
    """Two lines in one, which costs neither."""
    place = draw.choice([at for at in range(len(data) - 1) if data[at : at + 1] == b"\n"])
    data[place : place + 1] = b"!"
    return set()


def cut(data: bytearray, draw: random.Random) -> set[int]:
    """Some hundred bytes that are gone, with every operation that they touch."""
    start = draw.randrange(len(data) - 1_000)
    end = start + draw.randrange(1, 600)
    lost = set(range(data.count(b"\n", 0, start) + 1, data.count(b"\n", 0, end - 1) + 2))
    del data[start:end]
    return lost


@pytest.mark.parametrize("damage", [flip, break_line, join, cut])
def test_exactly_what_was_damaged_fails_and_is_named(
    damage: Callable[[bytearray, random.Random], set[int]], folder: Path
) -> None:
    path = file_of(folder)
    whole = path.read_bytes()
    for seed in range(40):
        data = bytearray(whole)
        lost = damage(data, random.Random(seed))  # noqa: S311 - a seed is wanted
        path.write_bytes(data)
        os.utime(path, (time.time() - 300,) * 2)  # nobody writes to it
        found = read(folder)
        failed = {each.id.number for each in found if each.operation is None}
        read_well = {each.id.number: each.operation.documents[0]["_id"] for each in found if each.operation}
        assert failed <= lost, seed
        # A last line without its line feed may be under way for hours.
        assert failed | read_well.keys() | ({COUNT} & lost) == set(range(1, COUNT + 1)), seed
        assert read_well == {number: f"d{number}" for number in read_well}, seed
        numbers = [each.id.number for each in found]
        assert numbers == sorted(numbers), seed
        for each in found:
            said = f"line {each.id.number} of {path.name} is damaged: "
            assert each.operation is not None or each.fault.startswith(said)
        for stop in (3, 17, len(found)):  # whoever stops there goes on behind it, and nothing comes twice
            state = IngestState(applied={path.stem: found[stop - 1].position})
            assert [each.id for each in read(folder, state)] == [each.id for each in found[stop:]], seed


def test_damage_at_the_end_is_named_once_nobody_writes_any_more(folder: Path) -> None:
    path = file_of(folder)
    data = path.read_bytes()
    path.write_bytes(data[:-20] + b"#" + data[-19:])
    # Another host may see half of a write.
    assert [each.id.number for each in read(folder)] == list(range(1, COUNT))
    os.utime(path, (time.time() - 61,) * 2)
    assert [each.id.number for each in read(folder) if each.operation is None] == [COUNT]
    path.write_bytes(data[:-1])
    os.utime(path, (time.time() - 61,) * 2)
    assert len(read(folder)) == COUNT - 1
    os.utime(path, (time.time() - 7_201,) * 2)
    (last,) = [each for each in read(folder) if each.operation is None]
    assert (last.id.number, last.position.offset) == (COUNT, len(data) - 1)
    assert "its end is missing" in last.fault


def test_a_line_of_another_log_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / INGEST_FOLDER
    logs = [IngestLog(folder, 1 << 20) for _ in range(2)]
    for log in logs:
        for number in range(4):
            log.append("delete", ids=[f"{log.writer}/{number}"])
    one, two = (folder / "log" / f"{log.writer}.log" for log in logs)
    lines = one.read_bytes().splitlines(keepends=True)
    one.write_bytes(b"".join([*lines[:2], two.read_bytes().splitlines(keepends=True)[2], lines[3]]))
    found = {str(each.id): each.operation for each in read(folder)}
    assert found[f"{logs[0].writer}-3"] is None
    assert sum(each is None for each in found.values()) == 1
    assert len(found) == 8


def test_an_operation_is_known_by_the_last_number_of_its_file(folder: Path) -> None:
    path = file_of(folder)
    assert has_log(folder, OperationId(path.stem, COUNT))
    assert not has_log(folder, OperationId(path.stem, COUNT + 1))
    assert not has_log(folder, OperationId("20200101T000000-00000000", 1))
    path.write_bytes(b"\n" + path.read_bytes() + b"half of a li")
    assert has_log(folder, OperationId(path.stem, COUNT))
    path.write_bytes(b"")
    assert not has_log(folder, OperationId(path.stem, 1))


def test_damaged_outcomes_cost_themselves(tmp_path: Path) -> None:
    names = [OperationId("20261124T003351-f2fb5f26", number) for number in range(1, 12)]
    for name in names:
        note_outcomes(tmp_path, {name: Outcome(id=str(name), state="applied", version=f"v{name.number}")})
    path = tmp_path / "outcomes" / f"{names[0].writer}.jsonl"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"v3"', b'"v3\xff')[:-9])  # one is damaged, and the last has lost its end
    note_outcomes(tmp_path, {names[2]: Outcome(id=str(names[2]), state="failed", version="later")})
    found = [find_outcome(tmp_path, name) for name in names]
    versions = [each.version if each else None for each in found]
    assert versions == ["v1", "v2", "later", *(f"v{number}" for number in range(4, 11)), None]
