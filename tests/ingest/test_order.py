"""Writes are applied in the order of their acknowledgements: on one host, between hosts, with a backlog, and whatever is killed."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from glow.ingest import INGEST_FOLDER, IngestLog, IngestState, LogBusyError, LogClock, read_accepted
from tests.ingest.conftest import MakeRoot, held, holding, start_ingest
from tests.program import ROOT, glow

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
    for damage in (b"", b"rubbish that is no clock\n", b"00000000 00000000000000000000\n", None):
        (folder / "clock").unlink() if damage is None else (folder / "clock").write_bytes(damage)
        sent.append(str(IngestLog(folder, 1 << 20).append("delete", ids=["x"])))
    assert waiting(folder) == sent


def test_a_process_that_is_stopped_with_the_clock_stops_nobody_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.ingest.records.LOCK_WAIT_S", 0.3)
    folder = tmp_path / INGEST_FOLDER
    log = IngestLog(folder, 1 << 20)
    log.append("delete", ids=["x"])
    with holding("LogClock(Path(sys.argv[1])).tick()", folder):
        with pytest.raises(LogBusyError, match="check whether one is stopped"):
            log.append("delete", ids=["y"])
    assert log.append("delete", ids=["z"]).number == 2
    with LogClock(folder).tick() as at:
        assert at > 0


SEEDS = [(60, 1), *(pytest.param(400, seed, marks=pytest.mark.slow) for seed in range(2, 12))]


@pytest.mark.parametrize(("rounds", "seed"), SEEDS)
def test_the_index_is_what_the_acknowledged_writes_make_of_it(
    rounds: int, seed: int, root_of: MakeRoot, toy_model: Path
) -> None:
    """Three writers and `glow ingest`, killed at random, beside a dictionary that each write is put into after its answer."""
    root, draw = root_of(12), random.Random(seed)  # noqa: S311 - a seed is wanted
    log, expected = root.path / INGEST_FOLDER, held(root)
    options = ("--poll-interval-s", 0.05, "--threads", 1, "--batch-documents", 4, "--compact-threshold", 0.01)

    def start() -> "subprocess.Popen[bytes]":
        return start_ingest(root, toy_model, *map(str, options))

    ingest = start()
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
                ingest.kill()
                ingest.wait()
                ingest = start()
            elif chance < 0.08:
                found[found.index(writer)] = Writer(log, draw.uniform(-2, 2))
                writer.kill()
            time.sleep(draw.choice((0.0, 0.0, 0.03, 0.1)))
    ingest.kill()
    ingest.wait()
    done = glow("ingest", "--index-root", root.path, "--model", toy_model, *options, "--once")
    assert done.returncode == 0, done.stderr
    assert held(root) == expected
