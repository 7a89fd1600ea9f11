"""Clicks that teach: what counts as a click, how many people must agree on it, and who counts as one person.

A person has another mark in each salt period: marks of several periods are never taken for several people.
"""

import hashlib
import hmac
import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
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


def shown(request: str, query: str, hits: str, **more: Any) -> LoggedQuery:
    return LoggedQuery(request, query, "hybrid", 10, 0, "v", 1.0, hits=tuple(hits.split()), **more)


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
    searches = [shown("r", "Bees  Home", "a b c"), shown("twice", "x", "b"), shown("twice", "y", "b")]
    clicks = count_clicks(searches, [event])
    assert clicks.counts == {**dict.fromkeys(clicks.counts, 0), kind: 1}
    assert clicks.searches == 3
    assert clicks.queries_of(1) == ({"b": ["bees home"]} if kind == "clicks" else {})


def test_a_click_that_comes_twice_counts_once_with_its_longest_dwell() -> None:
    events = [click("r", "a"), *(click("r", "a", dwell_s=seconds) for seconds in (1.0, 30.0))]
    clicks = count_clicks([shown("r", "bees", "a b")], [*events, click("r", "b", dwell_s=1.0)])
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
@settings(max_examples=50)
def test_queries_are_told_apart_by_their_words_alone(text: str) -> None:
    plain = same_query(text)
    assert same_query(plain) == same_query(f"  {text}\t ") == plain
    assert len(plain) <= 200


QUESTION = "who keeps the abbey of the vale"


@pytest.fixture(scope="module")
def root(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clicks")
    return made(toy_model, write(folder / "first.jsonl", documents(60)), folder / "index", index="flat").path


@pytest.fixture(scope="module")
def logs(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The logs of a service of which forty people asked something."""
    folder = tmp_path_factory.mktemp("logs")
    queries, clicks = folder / "queries.jsonl", folder / "feedback.jsonl"
    flags = ["--query-log", str(queries), "--feedback-log", str(clicks), "--workers", "1"]
    digest = f"app:{hashlib.sha256(b'key').hexdigest()}"
    with serving(root, *flags, "--api-keys", digest) as running:
        with GlowClient(running.url, api_key="key") as client:
            for number in range(40):
                query = QUESTION if number % 2 else f"bees and home {number % 4}"
                found = client.search(query, retriever="dense", top_k=10)
                client.feedback(found.request_id, found.hits[3].id, dwell_s=30, user=f"user {number}")
    return queries, clicks


def run(*arguments: object) -> Any:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    return done.exit_code, " ".join(done.output.split())


def learn(root: Path, out: Path, queries: Path, *clicks: Path) -> tuple[int, str]:
    """Runs the command; its exit status and what it says. Its report lies beside what it writes."""
    given = [f"--feedback-log={path}" for path in clicks]
    report = out.with_suffix(".json")
    return run(
        "learn-clicks", "--index-root", root, "--query-log", queries, *given, "--out", out, "--json", report
    )


def learned_by_id(out: Path) -> dict[str, list[str]]:
    lines = map(json.loads, out.read_text().splitlines())
    return {line["_id"]: line["clicked_queries"] for line in lines}


def test_from_a_service_to_better_hits(
    root: Path, logs: tuple[Path, Path], toy_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "learned.jsonl"
    status, told = learn(root, out, *logs)
    assert status == 0, told
    report = json.loads(out.with_suffix(".json").read_text())
    assert (report["feedback"]["clicks"], report["feedback"]["unknown"]) == (40, 0)
    (wanted,) = (identifier for identifier, queries in learned_by_id(out).items() if QUESTION in queries)

    def place() -> int:
        """Where the words of the question find its document."""
        found = tmp_path / "found.json"
        where = ("--index-root", root, "--retriever", "lexical", "--top-k", 60, "--json", found)
        status, told = run("search", QUESTION, *where)
        assert status == 0, told
        ids = [hit["id"] for hit in json.loads(found.read_text())["hits"]]
        return ids.index(wanted) if wanted in ids else 60

    before = place()
    status, told = run("upsert", "--input", out, "--index-root", root, "--model", toy_model)
    assert status == 0, told
    assert place() < before


def test_what_cannot_be_learned_from_is_told(root: Path, logs: tuple[Path, Path], tmp_path: Path) -> None:
    (empty := tmp_path / "empty.jsonl").write_text("")
    status, told = learn(root, tmp_path / "out", empty, logs[1])
    assert status == 2 and "no click matches a logged search (40 unmatched" in told
    status, told = learn(root, tmp_path / "out", tmp_path / "no.jsonl", empty)
    assert status == 2 and "cannot read the log" in told


def test_damaged_lines_cost_themselves_alone(root: Path, tmp_path: Path) -> None:
    """Logs with five flipped bytes each: learning goes on, and says what it skipped."""
    searches = [shown(f"r{user}", "owls", "a b c", time="2026-11-01") for user in range(40)]
    events = [click(f"r{user}", "b", f"u{user}", period="p") for user in range(40)]
    queries, clicks = tmp_path / "queries.jsonl", tmp_path / "clicks.jsonl"
    for seed in range(10):
        draw = random.Random(seed)  # noqa: S311 - a seed is wanted
        for path, values in ((queries, searches), (clicks, events)):
            data = bytearray("".join(json.dumps(each.values()) + "\n" for each in values).encode())
            for _ in range(5):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            path.write_bytes(data)
        status, told = learn(root, tmp_path / str(seed), queries, clicks)
        assert status == 0, told
        assert "damaged lines of the logs were skipped; the first: " in told


DAY_S = 86_400
FIRST_DAY = 20_400
"""A day that is the first of a period of 30 days."""
PRIVATE = "divorce lawyer for anna example"


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
        queries.log(shown(f"r{number}", PRIVATE, "d/1 d/2"))
        feedback.log(Feedback(f"r{number}", "d/1", kind), address)
        queries.close()
        feedback.close()


def pairs(root: Path, folder: Path, *logs: str) -> int:
    """How many pairs the command finds with its default options."""
    out = folder / "out.jsonl"
    status, told = learn(root, out, folder / "q", *(folder / name for name in logs))
    assert status == 0, told
    found: int = json.loads(out.with_suffix(".json").read_text())["pairs"]
    assert (PRIVATE in out.read_text()) == bool(found)
    return found


CLICK: FeedbackKind = "click"
PEOPLE = [(day, f"10.0.0.{day}", CLICK) for day in (0, 1, 2)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([(0, address, CLICK) for address in ("10.0.0.1", "10.0.0.2") * 4], 0),
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
    assert pairs(root, tmp_path, "f") == expected
    noted = list(read_feedback(tmp_path / "f"))
    assert len({each.period for each in noted}) == len({day // 30 for day, *_ in events})


def test_replicas_with_salts_of_their_own_do_not_make_one_person_three(root: Path, tmp_path: Path) -> None:
    queries = QueryLog(Metrics(), str(tmp_path / "q"))
    for number in range(3):
        (tmp_path / f"pod{number}").mkdir()
        feedback = FeedbackLog(Metrics(), str(tmp_path / f"pod{number}" / "f"))
        queries.log(shown(f"r{number}", PRIVATE, "d/1 d/2"))
        feedback.log(Feedback(f"r{number}", "d/1", "click"), "10.0.0.1")
        feedback.close()
    queries.close()
    assert pairs(root, tmp_path, "pod0/f", "pod1/f", "pod2/f") == 0


@pytest.mark.parametrize("found", [b"", b"short", bytes(31)])
def test_a_salt_that_is_no_key_is_never_used(
    found: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows the key can test addresses; of several processes that meet it each gets the same new one."""
    monkeypatch.setattr("glow_service.telemetry.query_log.time.time", lambda: FIRST_DAY * DAY_S + 1.0)
    salt = tmp_path / f"f.salt-30-{FIRST_DAY // 30}"
    salt.write_bytes(found)
    logs = [FeedbackLog(Metrics(), str(tmp_path / "f")) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda log: log.log(Feedback("r", "d", "click"), "127.0.0.1"), logs))
    for log in logs:
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
