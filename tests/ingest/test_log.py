"""The log of writes: in order, whole or not there, bounded, and never more forgetful than it says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glow.errors import QueryError
from glow.ingest import (
    INGEST_FOLDER,
    Accepted,
    IngestLog,
    IngestState,
    LogFullError,
    OperationId,
    Outcome,
    Position,
    find_outcome,
    note_outcomes,
    parse_operation_id,
    read_accepted,
    remove_applied,
    waiting_bytes,
    write_state,
    writers,
)

TEXT = "ünï ☃ " * 20_000


def read(root: Path, state: IngestState | None = None) -> list[Accepted]:
    return list(read_accepted(root / INGEST_FOLDER, state or IngestState()))


def names(found: list[Accepted]) -> list[str]:
    return [each.operation.documents[0]["_id"] for each in found if each.operation is not None]


def log_of(root: Path, most_bytes: int = 1 << 24) -> IngestLog:
    return IngestLog(root / INGEST_FOLDER, most_bytes)


def test_what_several_processes_wrote_comes_in_the_order_of_their_writing(tmp_path: Path) -> None:
    logs = [log_of(tmp_path) for _ in range(3)]
    expected = []
    for number in range(12):
        name = f"d{number}"
        log = logs[number * 7 % 3]
        accepted = log.append("upsert", documents=[{"_id": name, "text": TEXT}])
        assert parse_operation_id(str(accepted)) == accepted
        expected.append((str(accepted), name))
    found = read(tmp_path)
    assert [(str(each.id), name) for each, name in zip(found, names(found), strict=True)] == expected
    assert all(each.operation and each.operation.documents[0]["text"] == TEXT for each in found)
    done = IngestState(applied={each.id.writer: each.position for each in found[:5]})
    assert names(read(tmp_path, done)) == [name for _, name in expected[5:]]


def test_a_full_log_takes_no_more_until_some_of_it_is_applied(tmp_path: Path) -> None:
    log = log_of(tmp_path, 2_000)
    told = r"bytes wait to be applied \(limit: 2000\); check that `glow ingest` runs"
    with pytest.raises(LogFullError, match=told):
        for number in range(100):
            log.append("upsert", documents=[{"_id": f"d{number}", "text": "x" * 100}])
    found = read(tmp_path)
    assert 5 < len(found) < 20
    folder = tmp_path / INGEST_FOLDER
    assert 1_500 < waiting_bytes(folder) <= 2_000
    write_state(folder, IngestState(applied={log.writer: found[-1].position}))
    assert waiting_bytes(folder) == 0
    time.sleep(0.6)  # how long the size counts
    assert log.append("delete", ids=["d1"]).number == len(found) + 1


def test_an_operation_is_synced_before_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    log = log_of(tmp_path)
    for number in range(2):
        log.append("delete", ids=[f"d{number}"])
        (path,) = (tmp_path / INGEST_FOLDER / "log").iterdir()
        assert synced[-1] == path.stat().st_size  # all of it, and after it was written


KILLED = """
import sys
from pathlib import Path
from glow.ingest import IngestLog
log = IngestLog(Path(sys.argv[1]) / ".ingest", 1 << 30)
for number in range(100_000):
    print(log.append("upsert", documents=[{"_id": f"d{number}", "text": "x" * 20_000}]), flush=True)
"""


def test_what_a_killed_process_said_is_accepted_is_there(tmp_path: Path) -> None:
    for round_number in range(5):
        root = tmp_path / str(round_number)
        root.mkdir()
        command = [sys.executable, "-c", KILLED, str(root)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = [process.stdout.readline().strip()]
            time.sleep(0.05 + 0.03 * round_number)
            os.kill(process.pid, signal.SIGKILL)
            said += [line.strip() for line in process.stdout if line.endswith("\n")]
        found = [str(each.id) for each in read(root)]
        assert said
        assert found[: len(said)] == said
        assert len(found) <= len(said) + 1


@pytest.mark.parametrize(
    "text", ["", "x", "20261124T003351-f2fb5f26", "20261124T003351-f2fb5f26-0", "../../etc/passwd-1"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="is not an operation id"):
        parse_operation_id(text)


def test_positions_only_go_on() -> None:
    one, two = Position(number=3, offset=30), Position(number=5, offset=50)
    state = IngestState(applied={"a": one, "b": two}).with_later(
        IngestState(applied={"a": two, "b": one, "c": one})
    )
    assert state.applied == {"a": two, "b": two, "c": one}
    assert str(OperationId("20261124T003351-f2fb5f26", 7)) == "20261124T003351-f2fb5f26-7"


def test_a_file_ends_when_it_is_large_or_was_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path)
    monkeypatch.setattr("glow.ingest.log.MOST_FILE_BYTES", 300)
    accepted = [log.append("upsert", documents=[{"_id": f"d{each}", "text": "x" * 100}]) for each in range(6)]
    assert len({each.writer for each in accepted}) == 3
    assert {each.number for each in accepted} == {1, 2}
    monkeypatch.undo()
    now = time.time_ns()
    monkeypatch.setattr("glow.ingest.log.time.time_ns", lambda: now + 2 * 3600 * 10**9)
    # The file of a process that was idle may be removed: what it writes then must not go with it.
    later = log.append("upsert", documents=[{"_id": "later"}])
    assert later.writer not in {each.writer for each in accepted}
    assert names(read(tmp_path)) == [*(f"d{each}" for each in range(6)), "later"]


def test_what_is_known_of_a_file_goes_with_it(tmp_path: Path) -> None:
    log, folder = log_of(tmp_path), tmp_path / INGEST_FOLDER
    one = log.append("delete", ids=["a"])
    note_outcomes(folder, {one: Outcome(id="", state="applied", version="v", counts={})})
    state = IngestState(applied={log.writer: read(tmp_path)[-1].position})
    assert writers(folder) == {log.writer}
    assert state.only(writers(folder)) == state
    remove_applied(folder, state, time.time())
    assert state.only(writers(folder)) == state  # it may still be written to
    remove_applied(folder, state, time.time() + 10**6)
    assert find_outcome(folder, one) is None
    assert state.only(writers(folder)) == IngestState()
