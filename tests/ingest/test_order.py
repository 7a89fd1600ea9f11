"""Writes are applied in the order of their acknowledgements: on one host, between hosts, with a backlog, and whatever is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from glow.artifact import IndexRoot
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.ingest import INGEST_FOLDER, IngestLog, IngestState, LogBusyError, LogClock, read_accepted
from tests.attacks.harness import ROOT
from tests.made_index import documents, made, write

WRITER = """
import json, sys, time
from pathlib import Path
from glow.ingest import IngestLog
skew = int(float(sys.argv[2]) * 1e9)
clock = time.time_ns
time.time_ns = lambda: clock() + skew  # the clock of another host
log = IngestLog(Path(sys.argv[1]), 1 << 30)
for line in sys.stdin:
    kind, content = json.loads(line)
    print(log.append(kind, **content), flush=True)
"""


class Writer:
    """A process that writes what it is asked to, and answers once it is accepted."""

    def __init__(self, folder: Path, skew_s: float = 0.0) -> None:
        command = [sys.executable, "-c", WRITER, str(folder), str(skew_s)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def send(self, kind: str, **content: Any) -> str:
        """The operation's id."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([kind, content]) + "\n")
        self.process.stdin.flush()
        accepted = self.process.stdout.readline().strip()
        assert accepted
        return accepted

    def kill(self) -> None:
        """As a machine that fails."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def writers(folder: Path, *skews: float) -> Iterator[list[Writer]]:
    """One for each skew; ended at the end."""
    found = [Writer(folder, skew) for skew in skews]
    try:
        yield found
    finally:
        for each in found:
            each.kill()


def waiting(folder: Path) -> list[str]:
    return [str(each.id) for each in read_accepted(folder, IngestState())]


def test_what_comes_while_the_log_is_read_waits_for_the_next_time(tmp_path: Path) -> None:
    """A reader that has met the end of one file must not go on with younger operations of another."""
    folder = tmp_path / INGEST_FOLDER
    one, two = IngestLog(folder, 1 << 20), IngestLog(folder, 1 << 20)
    early = [str(log.append("delete", ids=["a"])) for log in (one, two, two)]
    reading = read_accepted(folder, IngestState())
    found = [str(next(reading).id)]
    first = str(one.append("delete", ids=["x"]))
    second = str(two.append("delete", ids=["x"]))
    found += [str(each.id) for each in reading]
    assert found == early
    assert waiting(folder) == [*early, first, second]


@pytest.mark.parametrize("skews", [(0.0, 0.0, 0.0), (30.0, -30.0, 5.0)])
def test_the_order_of_acknowledgements_is_the_order_of_the_log(
    skews: tuple[float, ...], tmp_path: Path
) -> None:
    folder = tmp_path / INGEST_FOLDER
    with writers(folder, *skews) as found:
        draw = random.Random(3)  # noqa: S311 - a seed is wanted
        sent = [draw.choice(found).send("delete", ids=["x"]) for _ in range(60)]
    assert waiting(folder) == sent


def test_a_clock_that_was_lost_is_behind_nothing_that_was_written(tmp_path: Path) -> None:
    folder = tmp_path / INGEST_FOLDER
    with writers(folder, 3_600.0) as (ahead,):
        sent = [ahead.send("delete", ids=["x"]) for _ in range(3)]
    for damage in (b"", b"rubbish that is no clock\n", b"00000000 00000000000000000000\n"):
        (folder / "clock").write_bytes(damage)
        with writers(folder, 0.0) as (new,):
            sent.append(new.send("delete", ids=["x"]))
    (folder / "clock").unlink()
    with writers(folder, 0.0) as (new,):
        sent.append(new.send("delete", ids=["x"]))
    assert waiting(folder) == sent


def test_a_process_that_is_stopped_with_the_clock_stops_nobody_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.ingest.records.LOCK_WAIT_S", 0.3)
    folder = tmp_path / INGEST_FOLDER
    log = IngestLog(folder, 1 << 20)
    log.append("delete", ids=["x"])
    code = "import sys, time; from pathlib import Path; from glow.ingest import LogClock\n"
    code += "with LogClock(Path(sys.argv[1])).tick():\n print('held', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LogBusyError, match="check whether one is stopped"):
            log.append("delete", ids=["y"])
        other.kill()
    assert log.append("delete", ids=["z"]).number == 2
    with LogClock(folder).tick() as at:
        assert at > 0


def replay(rounds: int, seed: int, model: Path, folder: Path) -> None:
    """Three writers and `glow ingest`, killed at random, beside a dictionary that each write is put into after its answer."""
    root = made(model, write(folder / "first.jsonl", documents(12)), folder / "index", index="flat")
    log, draw = root.path / INGEST_FOLDER, random.Random(seed)  # noqa: S311 - a seed is wanted
    expected = {each.id: each.fields["text"][0] for each in _index(root)[STORED_FIELDS].scan()}
    command = [sys.executable, "-m", "glow", "ingest", "--index-root", str(root.path), "--model", str(model)]
    options = [
        "--poll-interval-s",
        "0.05",
        "--threads",
        "1",
        "--batch-documents",
        "4",
        "--compact-threshold",
        "0.01",
    ]
    ingest = _start([*command, *options])
    with writers(log, 0.0, 2.0, -2.0) as found:
        for number in range(rounds):
            writer = draw.choice(found)
            names = draw.sample([f"d/{each}" for each in range(6)] + ["x", "y"], draw.randint(1, 3))
            if draw.random() < 0.4:
                writer.send("delete", ids=names)
                for name in names:
                    expected.pop(name, None)
            else:
                writer.send("upsert", documents=[{"_id": name, "text": f"words {number}"} for name in names])
                expected |= dict.fromkeys(names, f"words {number}")
            chance = draw.random()
            if chance < 0.03:
                ingest.send_signal(signal.SIGKILL)
                ingest.wait()
                ingest = _start([*command, *options])
            elif chance < 0.08:
                found[found.index(writer)] = Writer(log, draw.uniform(-2, 2))
                writer.kill()
            time.sleep(draw.choice((0.0, 0.0, 0.03, 0.1)))
    ingest.send_signal(signal.SIGKILL)
    ingest.wait()
    done = subprocess.run(
        [*command, *options, "--once"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert {each.id: each.fields["text"][0] for each in _index(root)[STORED_FIELDS].scan()} == expected


def test_the_index_is_what_the_acknowledged_writes_make_of_it(toy_model: Path, tmp_path: Path) -> None:
    replay(60, 1, toy_model, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_the_index_is_what_the_acknowledged_writes_make_of_it_at_length(
    seed: int, toy_model: Path, tmp_path: Path
) -> None:
    replay(400, seed, toy_model, tmp_path)


def _index(root: IndexRoot) -> Index:
    return Index.open(root.folder(root.current()))


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
