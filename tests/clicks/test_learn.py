"""Clicks that teach: what counts as a click, what rank does to it, what many people must agree on, and what programs cannot do."""

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from glow.cli import app
from glow.client import GlowClient
from glow.collection import read_qrels, read_queries
from glow.feedback import Feedback
from glow.query_log import LoggedQuery
from glow_index_builder.clicks import (
    ClickLimits,
    Joined,
    LearnLimits,
    count_at_ranks,
    join,
    learn,
    measure_propensities,
    same_query,
)
from tests.attacks.harness import serving
from tests.made_index import documents, made, write

LIMITS = ClickLimits(most_a_day=50)


def shown(request: str, query: str, hits: str, offset: int = 0) -> LoggedQuery:
    return LoggedQuery(
        request, query, "hybrid", 10, offset, "v", 1.0, hits=tuple(hits.split()), time="2026-11-01"
    )


def click(request: str, identifier: str, source: str = "u1", **more: Any) -> Feedback:
    return replace(Feedback(request, identifier, "click", None, None, source, "2026-11-01T10:00:00"), **more)


def joined(queries: list[LoggedQuery], events: list[Feedback]) -> Joined:
    return join(queries, events, LIMITS)


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
    found = joined(searches, [event])
    assert found.counts == {**dict.fromkeys(found.counts, 0), kind: 1}
    assert found.searches[0].query == "bees home"
    if kind == "clicks":
        assert found.searches[0].clicks["b"].rank == 12


def test_a_click_that_comes_twice_counts_once_with_its_longest_dwell() -> None:
    events = [
        click("r", "a"),
        click("r", "a", dwell_s=1.0),
        click("r", "a", dwell_s=30.0),
        click("r", "b", dwell_s=1.0),
    ]
    found = joined([shown("r", "bees", "a b")], events)
    assert (found.counts["clicks"], found.counts["short"]) == (1, 1)
    assert list(found.searches[0].clicks) == ["a"]


def test_a_program_that_takes_its_time_counts_for_nothing_either() -> None:
    searches = [shown(f"r{number}", "bees", "a b") for number in range(60)]
    days = [
        click(f"r{number}", "b", "slow", time=f"2026-{1 + number // 28:02}-{1 + number % 28:02}T10")
        for number in range(60)
    ]
    assert joined(searches, days).counts["clicks"] == 60
    assert join(searches, days, replace(LIMITS, most=59)).counts["programs"] == 60


def test_a_program_counts_for_nothing() -> None:
    searches = [shown(f"r{number}", "bees", "a b") for number in range(60)]
    people = [click(f"r{number}", "a", f"u{number}") for number in range(5)]
    program = [click(f"r{number}", "b", "program") for number in range(5, 60)]
    found = joined(searches, [*people, *program])
    assert (found.programs, found.counts["programs"], found.counts["clicks"]) == (1, 55, 5)
    assert found.searches == joined(searches[:5], people).searches


@given(st.text(max_size=300))
def test_queries_are_told_apart_by_their_words_alone(text: str) -> None:
    plain = same_query(text)
    assert same_query(plain) == plain
    assert same_query(f"  {text}\t ") == plain
    assert len(plain) <= 200


def simulated(exponent: float, seed: int, searches: int = 40_000) -> Joined:
    """Users of whom each looks at rank k with chance k^-exponent; rankings of a query differ from time to time."""
    random = np.random.default_rng(seed)
    queries, events = [], []
    for number in range(searches):
        query = int(random.integers(200))
        order = np.argsort(np.arange(10) + random.normal(0, 1.5, 10))  # one query's ranking, shaken
        hits = [f"q{query}-d{document}" for document in order]
        queries.append(shown(f"r{number}", f"query {query}", " ".join(hits)))
        for rank, document in enumerate(order, start=1):
            attraction = 0.7 if document == query % 10 else 0.05
            if random.random() < rank**-exponent * attraction:
                events.append(click(f"r{number}", hits[rank - 1], f"u{random.integers(5_000)}"))
    return join(queries, events, ClickLimits(most_a_day=10_000, most=100_000))


@pytest.mark.parametrize("exponent", [0.3, 0.7, 1.3])
def test_propensities_are_measured_whatever_they_are(exponent: float) -> None:
    found = simulated(exponent, seed=1)
    propensities = measure_propensities(count_at_ranks(found.searches, 10), 10)
    expected = np.arange(1, 11) ** -exponent
    assert propensities.values[0] == 1.0
    assert np.abs(propensities.values / expected - 1)[:6].max() < 0.12
    assert propensities.at(50) == propensities.values[-1]


def test_without_documents_at_several_ranks_the_prior_stays() -> None:
    searches = [shown(f"r{number}", "bees", "a b c") for number in range(50)]
    found = joined(searches, [click(f"r{number}", "a", f"u{number}") for number in range(50)])
    propensities = measure_propensities(count_at_ranks(found.searches, 5), 5)
    assert propensities.values == pytest.approx(1 / np.arange(1, 6))
    assert not propensities.clicks.any()


def test_what_users_agree_on_is_learned_wherever_it_stood() -> None:
    found = simulated(1.0, seed=2)
    counts = count_at_ranks(found.searches, 10)
    learned = learn(found.searches, counts, measure_propensities(counts, 10), LearnLimits())
    pairs = {(pair.query, pair.id) for pair in learned.pairs}
    right = {(f"query {query}", f"q{query}-d{query % 10}") for query in range(200)}
    assert len(pairs & right) >= 198
    assert len(pairs - right) <= 2
    assert all(
        f"q{query}-d{query % 10}" not in learned.negatives.get(f"query {query}", ()) for query in range(200)
    )
    assert sum(map(len, learned.negatives.values())) > 200


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
    found = joined(searches, events)
    counts = count_at_ranks(found.searches, 10)
    learned = learn(found.searches, counts, measure_propensities(counts, 10), LearnLimits())
    assert [pair.id for pair in learned.pairs] == (["a"] if is_learned else [])


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


def test_from_a_service_to_documents_and_training(
    service: tuple[Path, Path], toy_model: Path, tmp_path: Path
) -> None:
    root, folder = service
    logs = ("--query-log", folder / "queries.jsonl", "--feedback-log", folder / "feedback.jsonl")
    done = run(
        "learn-clicks",
        "--index-root",
        root,
        *logs,
        "--out",
        tmp_path / "out",
        "--json",
        tmp_path / "report.json",
    )
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["feedback"]["clicks"], report["feedback"]["unknown"]) == (40, 0)
    lines = [json.loads(line) for line in (tmp_path / "out" / "documents.jsonl").read_text().splitlines()]
    learned = {line["_id"]: line["clicked_queries"] for line in lines}
    assert any(QUESTION in queries for queries in learned.values())
    training = tmp_path / "out" / "train"
    texts = {query.id: query.text for query in read_queries(training / "queries.jsonl")}
    rows = [row for split in ("train", "dev") for row in read_qrels(training / "qrels" / f"{split}.tsv")]
    assert {(texts[row.query_id], row.document_id) for row in rows} == {
        (query, identifier) for identifier, queries in learned.items() for query in queries
    }
    corpus = [json.loads(line) for line in (training / "corpus.jsonl").read_text().splitlines()]
    assert len(corpus) == 60 and not any("clicked_queries" in line for line in corpus)
    before = place_of(root, learned)
    tuned = run(
        "tune",
        "--index-root",
        root,
        "--data",
        training,
        "--split",
        "train",
        "--json",
        tmp_path / "tuned.json",
    )
    assert tuned.exit_code == 0, tuned.output
    assert json.loads((tmp_path / "tuned.json").read_text())["nDCG@10"]["queries"] >= 2
    upsert = run(
        "upsert", "--input", tmp_path / "out" / "documents.jsonl", "--index-root", root, "--model", toy_model
    )
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
    given = ("learn-clicks", "--index-root", root, "--out", tmp_path / "out")
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
