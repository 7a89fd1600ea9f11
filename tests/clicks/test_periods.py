"""One person has another mark in each salt period: `glow learn-clicks` never takes the marks of several periods for several people."""

import hashlib
import hmac
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glow.cli import app
from glow.feedback import Feedback, FeedbackKind, read_feedback
from glow.query_log import LoggedQuery
from glow_index_builder.clicks import (
    ClickLimits,
    LearnLimits,
    count_at_ranks,
    join,
    learn,
    measure_propensities,
)
from glow_service.telemetry import FeedbackLog, Metrics, QueryLog
from tests.made_index import documents, made, write

DAY_S = 86_400
FIRST_DAY = 20_400
"""A day that is the first of a period of 30 days."""
PRIVATE = "divorce lawyer for anna example"


@pytest.fixture(scope="module")
def root(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("periods")
    return made(toy_model, write(folder / "a.jsonl", documents(30)), folder / "index", index="flat").path


Event = tuple[int, str, FeedbackKind]
"""Days since the first one, address, what was done."""


def note(folder: Path, events: Sequence[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes both logs as the service does, each event at its own time."""
    now = [0.0]
    monkeypatch.setattr("glow_service.telemetry.feedback_log.time.time", lambda: now[0])
    for number, (day, address, kind) in enumerate(events):
        now[0] = (FIRST_DAY + day) * DAY_S + 60.0 * number
        queries = QueryLog(Metrics(), str(folder / "q"))
        feedback = FeedbackLog(Metrics(), str(folder / "f"))
        queries.log(LoggedQuery(f"r{number}", PRIVATE, "hybrid", 10, 0, "v", 1.0, hits=("d/1", "d/2")))
        feedback.log(Feedback(f"r{number}", "d/1", kind), address)
        queries.close()
        feedback.close()


def pairs(root: Path, folder: Path, *logs: str) -> int:
    """How many pairs `glow learn-clicks` finds with its default options."""
    files = [f"--feedback-log={folder / name}" for name in logs or ("f",)]
    given = (
        "learn-clicks",
        "--index-root",
        root,
        "--query-log",
        folder / "q",
        *files,
        "--out",
        folder / "out",
    )
    done = CliRunner().invoke(app, [*map(str, given), "--json", str(folder / "report.json")])
    assert done.exit_code == 0, done.output
    has_query = PRIVATE in (folder / "out" / "documents.jsonl").read_text()
    found: int = json.loads((folder / "report.json").read_text())["pairs"]
    assert has_query == bool(found)
    return found


CLICK: FeedbackKind = "click"
PEOPLE = [(day, f"10.0.0.{day}", CLICK) for day in (0, 1, 2)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([(day, "10.0.0.1", CLICK) for day in (0, 31, 62)], 0),
        ([(30 * period, "10.0.0.1", CLICK) for period in range(12)], 0),
        # Three people in three days, but on both sides of a bound.
        ([(28, "10.0.0.1", CLICK), (29, "10.0.0.2", CLICK), (30, "10.0.0.3", CLICK)], 0),
        (PEOPLE, 1),
        ([(31, "10.0.0.1", CLICK), *PEOPLE], 1),
        # Two people in each of two periods may be the same two.
        ([(day, address, CLICK) for day in (0, 31) for address in ("10.0.0.1", "10.0.0.2")], 0),
        # Somebody against it weighs whenever it was; the same somebody in two periods weighs once.
        ([*PEOPLE, (31, "10.0.0.9", "dislike")], 0),
        ([*PEOPLE, (3, "10.0.0.4", CLICK), *((day, "10.0.0.9", "dislike") for day in (5, 31, 62))], 1),
    ],
)  # fmt: skip
def test_a_person_counts_once_over_all_periods(
    events: Sequence[Event], expected: int, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(tmp_path, events, monkeypatch)
    assert pairs(root, tmp_path) == expected
    noted = list(read_feedback(tmp_path / "f"))
    assert len({each.period for each in noted}) == len({day // 30 for day, *_ in events})


def test_lines_without_a_period_count_within_their_day_and_file(root: Path, tmp_path: Path) -> None:
    """As an older version wrote them: three marks on three days may be one person, and so may those of three replicas."""

    def old(marks: Sequence[tuple[int, str]], names: Sequence[str]) -> None:
        searches = [
            LoggedQuery(
                f"r{number}", PRIVATE, "hybrid", 10, 0, "v", 1.0, hits=("d/1", "d/2"), time="t"
            ).values()
            for number in range(len(marks))
        ]
        (tmp_path / "q").write_text("".join(json.dumps(each) + "\n" for each in searches))
        for name in names:
            (tmp_path / name).unlink(missing_ok=True)
        for number, ((day, mark), name) in enumerate(zip(marks, names, strict=True)):
            line = Feedback(f"r{number}", "d/1", "click", source=mark, time=f"2026-11-{day:02}T10").values()
            del line["period"]
            with (tmp_path / name).open("a") as file:
                file.write(json.dumps(line) + "\n")

    old([(1, "m1"), (2, "m2"), (3, "m3")], ["f", "f", "f"])
    assert pairs(root, tmp_path) == 0
    old([(1, "m1"), (1, "m2"), (1, "m3")], ["f", "f", "f"])
    assert pairs(root, tmp_path) == 1
    old([(1, "m1"), (1, "m2"), (1, "m3")], ["f1", "f2", "f3"])
    assert pairs(root, tmp_path, "f1", "f2", "f3") == 0


def test_replicas_with_salts_of_their_own_do_not_make_one_person_three(root: Path, tmp_path: Path) -> None:
    queries = QueryLog(Metrics(), str(tmp_path / "q"))
    for number in range(3):
        (tmp_path / f"pod{number}").mkdir()
        feedback = FeedbackLog(Metrics(), str(tmp_path / f"pod{number}" / "f"))
        queries.log(LoggedQuery(f"r{number}", PRIVATE, "hybrid", 10, 0, "v", 1.0, hits=("d/1", "d/2")))
        feedback.log(Feedback(f"r{number}", "d/1", "click"), "10.0.0.1")
        feedback.close()
    queries.close()
    assert pairs(root, tmp_path, "pod0/f", "pod1/f", "pod2/f") == 0


def test_a_program_that_lasts_over_periods_counts_as_one_person_at_most() -> None:
    """Its clicks stay below the limit of each period: it is not found, and learns nothing either."""
    hits = ("a", "b")
    searches = [LoggedQuery(f"r{n}", "bees", "hybrid", 10, 0, "v", 1.0, hits=hits) for n in range(90)]
    events = [
        Feedback(f"r{n}", "a", "click", source=f"mark{n // 9}", time=f"{n}", period=f"{n // 9}")
        for n in range(90)
    ]
    found = join(searches, events, ClickLimits(most=9))
    counts = count_at_ranks(found.searches, 10)
    assert (found.programs, found.counts["clicks"]) == (0, 90)
    assert not learn(found.searches, counts, measure_propensities(counts, 10), LearnLimits()).pairs
    assert join(searches, events, ClickLimits(most=8)).programs == 10


def test_a_click_that_is_sent_again_counts_twice_against_the_limits() -> None:
    searches = [
        LoggedQuery(f"r{number}", "bees", "hybrid", 10, 0, "v", 1.0, hits=("a", "b")) for number in range(3)
    ]
    events = [
        Feedback(f"r{number}", "a", "click", None, dwell_s, "m", "2026-11-01", "p")
        for number in range(3)
        for dwell_s in (None, 20.0)
    ]
    assert join(searches, events, ClickLimits(most_a_day=6)).counts["clicks"] == 3
    for limits in (ClickLimits(most_a_day=5), ClickLimits(most=5)):
        found = join(searches, events, limits)
        assert (found.programs, found.searches) == (1, [])


@pytest.mark.parametrize("found", [b"", b"short", bytes(31)])
def test_a_salt_that_is_no_key_is_never_used(
    found: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows the key can test addresses; of several processes that meet it each gets the same new one."""
    monkeypatch.setattr("glow_service.telemetry.feedback_log.time.time", lambda: FIRST_DAY * DAY_S + 1.0)
    salt = tmp_path / f"f.salt-30-{FIRST_DAY // 30}"
    salt.write_bytes(found)
    logs = [FeedbackLog(Metrics(), str(tmp_path / "f")) for _ in range(4)]
    threads = [
        threading.Thread(target=log.log, args=(Feedback("r", "d", "click"), "127.0.0.1")) for log in logs
    ]
    for thread in threads:
        thread.start()
    for log, thread in zip(logs, threads, strict=True):
        thread.join()
        log.close()
    (mark,) = {each.source for each in read_feedback(tmp_path / "f")}
    key = salt.read_bytes()
    assert len(key) == 32 and salt.stat().st_mode & 0o077 == 0
    assert mark == hmac.new(key, b"127.0.0.1", hashlib.sha256).hexdigest()[:16]
    assert mark != hmac.new(found, b"127.0.0.1", hashlib.sha256).hexdigest()[:16]


def test_a_line_without_a_period_is_read(tmp_path: Path) -> None:
    line: dict[str, Any] = Feedback("r", "d", "click", source="m", time="2026-11-01T10:00:00").values()
    del line["period"]
    (tmp_path / "f").write_text(json.dumps(line) + "\n")
    (noted,) = read_feedback(tmp_path / "f")
    assert noted.period == f"{tmp_path / 'f'} 2026-11-01"
