"""Clicks that teach: what counts as a click, how many people must agree on it, and who counts as one person.

A person has another mark in each salt period: `glow learn-clicks` never takes the marks of several periods for several
people.
"""

import hashlib
import hmac
import json
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from glow.cli import app
from glow.client import GlowClient
from glow.query_log import Feedback, FeedbackKind, LoggedQuery, SkippedLines, read_feedback
from glow_index_builder.clicks import count_clicks, same_query
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import FeedbackLog, QueryLog
from tests.attacks.harness import serving
from tests.made_index import documents, made, write


def shown(request: str, query: str, hits: str, offset: int = 0) -> LoggedQuery:
    return LoggedQuery(
        request, query, "hybrid", 10, offset, "v", 1.0, hits=tuple(hits.split()), time="2026-11-01"
    )


def click(request: str, identifier: str, source: str = "u1", **more: Any) -> Feedback:
    return replace(Feedback(request, identifier, "click", None, None, source, "2026-11-01T10:00:00"), **more)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (click("r", "b"), "clicks"),
        (click("r", "b", rank=77), "clicks"),  # what the sender says of the rank is not believed
        (click("r", "nobody"), "unknown"),
        (click("other", "b"), "unknown"),
        (click("twice", "b"), "unknown"),
        (click("r", "b", dwell_s=2.0), "short"),
        (click("r", "b", dwell_s=5.0), "clicks"),
        (click("r", "b", kind="like", dwell_s=2.0), "clicks"),
        (click("r", "b", kind="dislike"), "dislikes"),
    ],
)
def test_what_becomes_of_an_event(event: Feedback, kind: str) -> None:
    searches = [
        shown("r", "Bees  Home", "a b c", offset=10),
        shown("twice", "x", "b"),
        shown("twice", "y", "b"),
    ]
    clicks = count_clicks(searches, [event])
    assert clicks.counts == {**dict.fromkeys(clicks.counts, 0), kind: 1}
    assert clicks.searches == 3
    assert clicks.queries_of(1) == ({"b": ["bees home"]} if kind == "clicks" else {})


def test_a_click_that_comes_twice_counts_once_with_its_longest_dwell() -> None:
    events = [
        click("r", "a"),
        click("r", "a", dwell_s=1.0),
        click("r", "a", dwell_s=30.0),
        click("r", "b", dwell_s=1.0),
    ]
    clicks = count_clicks([shown("r", "bees", "a b")], events)
    assert (clicks.counts["clicks"], clicks.counts["short"]) == (1, 1)
    assert clicks.queries_of(1) == {"a": ["bees"]}


def test_queries_of_most_people_come_first() -> None:
    searches = [shown(f"{query}{user}", query, "a") for query in ("hive", "bees") for user in range(3)]
    events = [click(f"hive{user}", "a", f"u{user}") for user in range(3)]
    events += [click(f"bees{user}", "a", f"u{user}") for user in range(2)]
    clicks = count_clicks(searches, events)
    assert clicks.queries_of(2) == {"a": ["hive", "bees"]}
    assert clicks.queries_of(3) == {"a": ["hive"]}


@given(st.text(max_size=300))
def test_queries_are_told_apart_by_their_words_alone(text: str) -> None:
    plain = same_query(text)
    assert same_query(plain) == plain
    assert same_query(f"  {text}\t ") == plain
    assert len(plain) <= 200


@pytest.mark.parametrize(
    ("sources", "dislikes", "is_learned"),
    [
        (["u1"] * 9, 0, False),
        (["u1", "u2"] * 4, 0, False),
        (["u1", "u2", "u3"], 0, True),
        (["u1", "u2", "u3"], 1, False),
    ],
)
def test_one_user_is_not_many(sources: list[str], dislikes: int, *, is_learned: bool) -> None:
    searches = [shown(f"r{number}", "bees", "a b") for number in range(12)]
    events = [click(f"r{number}", "a", source) for number, source in enumerate(sources)]
    events += [click(f"r{11 - number}", "a", f"u{9 + number}", kind="dislike") for number in range(dislikes)]
    assert count_clicks(searches, events).queries_of(3) == ({"a": ["bees"]} if is_learned else {})


QUESTION = "who keeps the abbey of the vale"


@pytest.fixture(scope="module")
def service(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An index, and the logs of a service over it of which forty people asked something."""
    folder = tmp_path_factory.mktemp("clicks")
    root = made(toy_model, write(folder / "first.jsonl", documents(60)), folder / "index", index="flat")
    flags = ("--query-log", folder / "queries.jsonl", "--feedback-log", folder / "feedback.jsonl")
    digest = f"app:{hashlib.sha256(b'key').hexdigest()}"
    with serving(root.path, *map(str, flags), "--api-keys", digest, "--workers", "1") as running:
        with GlowClient(running.url, api_key="key") as client:
            for number in range(40):
                query = QUESTION if number % 2 else f"bees and home {number % 4}"
                found = client.search(query, retriever="dense", top_k=10)
                client.feedback(found.request_id, found.hits[3].id, dwell_s=30, user=f"user {number}")
        assert httpx.get(f"{running.url}/healthz").status_code == 200
    return root.path, folder


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_from_a_service_to_better_hits(service: tuple[Path, Path], toy_model: Path, tmp_path: Path) -> None:
    root, folder = service
    out, report_file = tmp_path / "learned.jsonl", tmp_path / "report.json"
    logs = ("--query-log", folder / "queries.jsonl", "--feedback-log", folder / "feedback.jsonl")
    done = run("learn-clicks", "--index-root", root, *logs, "--out", out, "--json", report_file)
    assert done.exit_code == 0, done.output
    report = json.loads(report_file.read_text())
    assert (report["feedback"]["clicks"], report["feedback"]["unknown"]) == (40, 0)
    learned = {line["_id"]: line["clicked_queries"] for line in map(json.loads, out.read_text().splitlines())}
    assert any(QUESTION in queries for queries in learned.values())
    before = place_of(root, learned)
    upsert = run("upsert", "--input", out, "--index-root", root, "--model", toy_model)
    assert upsert.exit_code == 0, upsert.output
    assert place_of(root, learned) < before


def place_of(root: Path, learned: dict[str, list[str]]) -> int:
    """Where the words of the question find its document."""
    wanted = next(identifier for identifier, queries in learned.items() if QUESTION in queries)
    with serving(root, "--workers", "1") as running, GlowClient(running.url) as client:
        hits = client.search(QUESTION, retriever="lexical", top_k=60).hits
        return next((hit.rank for hit in hits if hit.id == wanted), 61)


def test_what_cannot_be_learned_from_is_told(service: tuple[Path, Path], tmp_path: Path) -> None:
    root, folder = service
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    given = ("learn-clicks", "--index-root", root, "--out", tmp_path / "out.jsonl")
    done = run(*given, "--query-log", empty, "--feedback-log", folder / "feedback.jsonl")
    assert done.exit_code == 2 and "no click matches a logged search (40 unmatched" in " ".join(
        done.output.split()
    )
    done = run(*given, "--query-log", tmp_path / "no.jsonl", "--feedback-log", empty)
    assert done.exit_code == 2 and "cannot read the log" in " ".join(done.output.split())


def test_damaged_lines_cost_themselves_alone(service: tuple[Path, Path], tmp_path: Path) -> None:
    """Ten logs with five flipped bytes each: learning goes on, and says what it skipped."""
    root, _ = service
    searches = [shown(f"r{user}", "owls", "a b c") for user in range(40)]
    events = [click(f"r{user}", "b", f"u{user}", period="p") for user in range(40)]
    queries, clicks = tmp_path / "queries.jsonl", tmp_path / "clicks.jsonl"
    for seed in range(10):
        draw = random.Random(seed)  # noqa: S311 - a seed is wanted
        for path, values in ((queries, searches), (clicks, events)):
            data = bytearray("".join(json.dumps(each.values()) + "\n" for each in values).encode())
            for _ in range(5):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            path.write_bytes(data)
        done = run(
            "learn-clicks",
            "--index-root",
            root,
            "--query-log",
            queries,
            "--feedback-log",
            clicks,
            "--out",
            tmp_path / str(seed),
        )
        assert done.exit_code == 0, done.output
        assert "damaged lines of the logs were skipped; the first: " in " ".join(done.output.split())


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
    monkeypatch.setattr("glow_service.telemetry.query_log.time.time", lambda: now[0])
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
        folder / "out.jsonl",
    )
    done = CliRunner().invoke(app, [*map(str, given), "--json", str(folder / "report.json")])
    assert done.exit_code == 0, done.output
    has_query = PRIVATE in (folder / "out.jsonl").read_text()
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


def test_a_program_that_lasts_over_periods_counts_as_one_person() -> None:
    hits = ("a", "b")
    searches = [LoggedQuery(f"r{n}", "bees", "hybrid", 10, 0, "v", 1.0, hits=hits) for n in range(90)]
    events = [
        Feedback(f"r{n}", "a", "click", source=f"mark{n // 9}", time=f"{n}", period=f"{n // 9}")
        for n in range(90)
    ]
    clicks = count_clicks(searches, events)
    assert clicks.counts["clicks"] == 90
    assert (clicks.queries_of(2), clicks.queries_of(1)) == ({}, {"a": ["bees"]})


@pytest.mark.parametrize("found", [b"", b"short", bytes(31)])
def test_a_salt_that_is_no_key_is_never_used(
    found: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows the key can test addresses; of several processes that meet it each gets the same new one."""
    monkeypatch.setattr("glow_service.telemetry.query_log.time.time", lambda: FIRST_DAY * DAY_S + 1.0)
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


def test_a_line_without_a_period_is_skipped(tmp_path: Path) -> None:
    line: dict[str, Any] = Feedback("r", "d", "click", source="m", time="2026-11-01T10:00:00").values()
    (tmp_path / "f").write_text(json.dumps(line) + "\n")
    skipped = SkippedLines()
    assert (list(read_feedback(tmp_path / "f", skipped)), skipped.count) == ([], 1)
