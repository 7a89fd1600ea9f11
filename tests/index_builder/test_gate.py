"""A version is published when it is as good as the live one, and says so; one that is worse only by force."""

import getpass
import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from glow.artifact import IndexRoot
from glow.errors import GateError
from glow.query_log import LoggedQuery
from glow_index_builder.versions.gate import GateOptions, judge
from tests.index_builder.conftest import Documents, Run, report_of, write_judged
from tests.index_builder.test_rerank import WORDS, made_up
from tests.made_index import made, write


@pytest.fixture
def documents(toy_corpus: Path) -> Documents:
    return [json.loads(line) for line in toy_corpus.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def judged(documents: Documents, tmp_path: Path) -> Path:
    """Thirty queries, each with the one document whose title it is."""
    queries = ((f"q{n}", each["title"], each["_id"], 1) for n, each in enumerate(documents[:30]))
    return write_judged(tmp_path / "judged", queries)


@pytest.fixture
def log(documents: Documents, tmp_path: Path) -> Path:
    queries = [
        LoggedQuery(f"r{n}", each["title"], "dense", 10, 0, "v", 1.0) for n, each in enumerate(documents)
    ]
    return write(tmp_path / "queries.jsonl", [query.values() for query in queries])


@pytest.fixture
def shuffled(documents: Documents, tmp_path: Path) -> Path:
    """The same ids, each with the text of another document: as many, and all wrong."""
    others = [*documents[1:], documents[0]]
    return write(
        tmp_path / "shuffled.jsonl",
        [{**other, "_id": each["_id"]} for each, other in zip(documents, others, strict=True)],
    )


def checks(gate: dict[str, Any]) -> dict[str, bool]:
    return {check["name"].partition(",")[0]: check["passed"] for check in gate["checks"]}


def test_an_equal_version_passes_and_its_manifest_says_so(
    build: Run, root: IndexRoot, toy_corpus: Path, judged: Path, tmp_path: Path
) -> None:
    before = root.current()
    done = build(toy_corpus, "--gate", judged, "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.stderr
    gate = report_of(tmp_path / "r.json")["gate"]
    assert root.current() != before
    assert root.manifest(root.current()).parameters["gate"] == gate
    assert (gate["status"], gate["against"], gate["queries"]) == ("passed", before, 30)
    assert checks(gate) == dict.fromkeys(
        ["recall@10", "rejects", "documents lost", "nDCG@10 dense", "nDCG@10 hybrid"], True
    )
    dense = gate["checks"][-2]
    assert dense["live"] == dense["new"] > 0.5 and dense["found"] == 0.0
    assert "gate: passed, 30 queries of judged/dev" in done.stdout


def test_a_worse_version_is_refused_and_force_says_who(
    build: Run, run: Run, root: IndexRoot, shuffled: Path, judged: Path, tmp_path: Path
) -> None:
    before = root.current()
    done = build(shuffled, "--gate", judged, "--json", tmp_path / "r.json")
    assert done.exit_code == 6
    assert "error (gate_refused): version" in done.stderr and f"{before} stays live" in done.stderr
    failed = report_of(tmp_path / "r.json")
    assert (failed["status"], failed["code"], root.current()) == ("failed", "gate_refused", before)
    assert not checks(failed["gate"])["nDCG@10 dense"] and checks(failed["gate"])["recall@10"]
    (new,) = (version for version in root.versions() if version != before)
    assert failed["version"] == new
    assert root.manifest(new).parameters["gate"]["status"] == "failed"

    done = run("publish", "--index-root", root.path, new)
    assert (done.exit_code, "the gate refused version" in done.stderr, root.current()) == (6, True, before)
    assert run("publish", "--index-root", root.path, new, "--force").exit_code == 0
    gate = root.manifest(new).parameters["gate"]
    assert (root.current(), gate["status"], gate["override"]["user"]) == (new, "forced", getpass.getuser())
    assert gate["override"]["failed"] == [each["name"] for each in gate["checks"] if not each["passed"]]
    assert run("publish", "--index-root", root.path, new).exit_code == 0  # what was forced once is known
    root.publish(before)
    assert build(shuffled, "--gate", judged, "--force").exit_code == 0  # in one go
    assert root.manifest(root.current()).parameters["gate"]["status"] == "forced"


@pytest.mark.parametrize(
    ("keep", "options", "failed"),
    [
        (35, ("--gate-threshold", -1), {"documents lost"}),
        (35, ("--gate-threshold", -1, "--gate-max-shrink", 0.3), set()),
        (15, ("--gate-max-shrink", 0.9), {"nDCG@10 dense", "nDCG@10 hybrid"}),
    ],
)
def test_a_corpus_that_shrank_is_refused_by_its_share(
    build: Run,
    root: IndexRoot,
    documents: Documents,
    judged: Path,
    tmp_path: Path,
    keep: int,
    options: tuple[object, ...],
    failed: set[str],
) -> None:
    fewer = write(tmp_path / "fewer.jsonl", documents[:keep])
    done = build(fewer, "--gate", judged, *options, "--json", tmp_path / "r.json")
    found = {name for name, passed in checks(report_of(tmp_path / "r.json")["gate"]).items() if not passed}
    assert (done.exit_code, found) == (6 if failed else 0, failed)


def test_many_rejects_are_refused_without_a_live_version(
    build: Run, output: Path, documents: Documents, judged: Path, tmp_path: Path
) -> None:
    lines = [*documents, *({"text": "no id"} for _ in range(5))]
    source = write(tmp_path / "rejects.jsonl", lines)
    done = build(source, "--gate", judged, "--json", tmp_path / "r.json")
    gate = report_of(tmp_path / "r.json")["gate"]
    assert (done.exit_code, gate["against"]) == (6, None)
    assert checks(gate) == {"recall@10": True, "rejects": False}
    assert "nothing is live" in done.stderr
    assert IndexRoot(output).live() is None
    assert build(source, "--gate", judged, "--gate-max-rejects", 0.1).exit_code == 0


def test_a_query_log_compares_hits_without_judgements(
    build: Run, root: IndexRoot, toy_corpus: Path, shuffled: Path, log: Path, tmp_path: Path
) -> None:
    assert build(toy_corpus, "--gate", "live", "--query-log", log).exit_code == 0
    gate = root.manifest(root.current()).parameters["gate"]
    overlap = {each["name"]: each["found"] for each in gate["checks"]}
    assert overlap["overlap@10 dense"] == overlap["overlap@10 hybrid"] == 1.0
    assert (gate["source"], gate["queries"]) == ("query log", 50)
    done = build(shuffled, "--gate", "live", "--query-log", log, "--json", tmp_path / "r.json")
    assert done.exit_code == 6
    assert not checks(report_of(tmp_path / "r.json")["gate"])["overlap@10 dense"]


def test_a_version_that_is_there_can_be_judged_and_then_published(
    build: Run, run: Run, root: IndexRoot, toy_corpus: Path, judged: Path, tmp_path: Path
) -> None:
    before = root.current()
    assert build(toy_corpus, "--no-publish").exit_code == 0
    new = root.versions()[-1]
    done = run("gate", "--index-root", root.path, "--data", judged, "--threads", 1)
    assert (done.exit_code, root.current()) == (0, before), done.stderr
    assert root.manifest(new).parameters["gate"]["status"] == "passed"
    done = run(
        "gate", "--index-root", root.path, new, "--data", judged, "--publish", "--json", tmp_path / "r.json"
    )
    assert (done.exit_code, root.current(), report_of(tmp_path / "r.json")["published"]) == (0, new, True)
    manifest = root.manifest(new)
    assert run("gate", "--index-root", root.path, new, "--data", judged).exit_code == 0
    assert root.manifest(new) == manifest  # what was published never changes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--gate live", "add --query-log"),
        ("--query-log q.jsonl", "require a gate"),
        ("--force", "require a gate"),
        ("--gate nowhere", "no qrels/SPLIT.tsv"),
        ("--gate live --query-log nowhere.jsonl", "cannot read the log"),
    ],
)
def test_a_gate_without_queries_is_wrong_options(
    build: Run, root: IndexRoot, toy_corpus: Path, options: str, said: str
) -> None:
    before = root.current()
    done = build(toy_corpus, *options.split())
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert root.current() == before


def test_judgements_of_another_corpus_are_told(
    build: Run, root: IndexRoot, toy_corpus: Path, judged: Path
) -> None:
    path = judged / "qrels" / "dev.tsv"
    path.write_text(path.read_text().replace("toy/", "other/"))
    done = build(toy_corpus, "--gate", judged)
    assert (done.exit_code, "expected relevance judgments of this corpus" in done.stderr) == (2, True)


def test_the_split_is_dev_or_the_only_one(
    build: Run, root: IndexRoot, toy_corpus: Path, judged: Path
) -> None:
    (judged / "qrels" / "dev.tsv").rename(judged / "qrels" / "spring.tsv")
    assert build(toy_corpus, "--gate", judged).exit_code == 0
    assert root.manifest(root.current()).parameters["gate"]["source"] == "judged/spring"
    (judged / "qrels" / "autumn.tsv").write_text((judged / "qrels" / "spring.tsv").read_text())
    done = build(toy_corpus, "--gate", judged)
    assert (done.exit_code, "name one with --gate-split" in done.stderr) == (2, True)
    assert build(toy_corpus, "--gate", judged, "--gate-split", "autumn").exit_code == 0


def test_a_version_that_went_live_meanwhile_is_what_counts(
    build: Run, root: IndexRoot, toy_corpus: Path, judged: Path
) -> None:
    """Another version is published while the gate compares; it waits for the lock then, and looks again."""
    for _ in range(2):
        assert build(toy_corpus, "--no-publish").exit_code == 0
    _, other, new = root.versions()
    gate: list[dict[str, Any]] = []
    options = GateOptions(data=judged)
    judged_at_once = partial(judge, IndexRoot(root.path), new, options, publish=True)
    thread = threading.Thread(target=lambda: gate.append(judged_at_once()))
    with root.locked():
        thread.start()
        thread.join(1.0)
        root.publish(other)
    thread.join()
    assert gate[0]["against"] == other
    assert (root.current(), root.history()[0]) == (new, other)


@pytest.mark.parametrize("option", ["rerank", "learned"])
def test_a_gate_measures_every_way_to_search_and_refuses_a_version_that_lost_one(
    option: str, tmp_path: Path, toy_model: Path, learned_model: Path, toy_reranker: Path
) -> None:
    """Queries of two words, each with the one document whose title and first word they are."""
    texts = (f"{WORDS[number % 18]} {WORDS[number * 5 % 18]}" for number in range(20))
    data = write_judged(tmp_path / "data", ((f"q{n}", text, f"d{n}", 1) for n, text in enumerate(texts)))
    source, output = tmp_path / "one.jsonl", tmp_path / "index"
    model = learned_model if option == "learned" else toy_model
    given: dict[str, Any] = {"learned": {"learned": True}, "rerank": {"rerank": toy_reranker}}[option]
    made(model, write(source, made_up(30)), output, **given)
    root = made(model, write(source, made_up(31)), output, **given, gate=str(data), threshold=-1.0)
    checks = root.manifest(root.current()).parameters["gate"]["checks"]
    assert any(check["name"].startswith(f"nDCG@10 {option}") for check in checks)
    with pytest.raises(GateError, match=r"ways to search lost is 1\.0000"):
        made(model, write(source, made_up(32)), output, gate=str(data), threshold=-1.0)
