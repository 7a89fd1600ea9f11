"""`glow evaluate`, `glow compare` and `benchmarks.peers`: what the commands print, write and refuse."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import peers
from glow.cli import app
from glow.collection import read_queries
from glow.errors import MismatchError
from glow.evaluation import corpus_index, read_run
from glow.evaluation.retrievers import open_version
from glow.index.vectors import SearchParams
from glow.search import Reranking
from glow_service.search.plan import SearchPlan
from glow_service.search.run import SearchSession
from tests.made_index import live

ROOT = Path(__file__).parents[2]
RETRIEVERS = ("dense", "lexical", "hybrid")


def call(*arguments: object) -> str:
    """Runs a command that must succeed; returns standard output."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def call_json(*arguments: object) -> Any:
    return json.loads(call(*arguments, "--json", "-"))


def refuse(*arguments: object, code: int = 2) -> str:
    """Runs a command that must be refused; returns the message."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    return " ".join(result.stderr.split())


@pytest.mark.parametrize("retriever", RETRIEVERS)
def test_the_report_has_the_documented_shape(toy_model: Path, toy_data: Path, retriever: str) -> None:
    arguments = ("--model", toy_model, "--data", toy_data, "--split", "dev", "--retriever", retriever)
    body = call_json("evaluate", *arguments)
    assert list(body) == ["model", "data", "split", "retriever", "queries", "measures", "options"]
    assert (body["data"], body["split"], body["retriever"], body["queries"]) == ("toy", "dev", retriever, 3)
    assert list(body["measures"]) == ["RR@10", "nDCG@10", "R@100", "NCG@10", "NCG@20", "NCG@50"]
    assert all(0.0 <= value <= 1.0 for value in body["measures"].values())
    assert body["options"]["documents"] == 50
    if retriever == "lexical":
        assert body["model"] is None
        assert body["measures"]["RR@10"] == 1.0
    else:
        assert body["model"].startswith("toy-model@sha256:")
        assert body["options"]["term_stats"] == "corpus"


def test_several_splits_give_a_list_and_encode_once(
    toy_model: Path, toy_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(
        corpus_index, "_encode", lambda *a, original=corpus_index._encode: calls.append(1) or original(*a)
    )
    arguments = ("evaluate", "--model", toy_model, "--data", toy_data, "--split", "dev")
    both = call_json(*arguments, "--split", "graded")
    assert len(calls) == 1
    assert [body["split"] for body in both] == ["dev", "graded"]
    assert both[0] == call_json(*arguments)


@pytest.mark.parametrize("depth", [0, 20])
@pytest.mark.parametrize("retriever", RETRIEVERS)
def test_an_index_is_measured_as_it_is_served(
    rerank_index: Path, toy_data: Path, tmp_path: Path, retriever: str, depth: int
) -> None:
    run = tmp_path / "served.trec"
    arguments = ("evaluate", "--data", toy_data, "--split", "dev", "--retriever", retriever)
    body = call_json(*arguments, "--rerank", depth, "--index-root", rerank_index, "--run", run)
    assert body["model"].startswith("toy-model@sha256:")
    assert body["options"].get("rerank", 0) == depth
    index, reranking = live(rerank_index), Reranking(depth) if depth else None
    texts = {query.id: query.text for query in read_queries(toy_data / "queries.jsonl")}
    for query_id, hits in read_run(run).items():
        plan = SearchPlan(
            texts[query_id], len(hits), 0, 200, SearchParams(), retriever, rerank=reranking, match="any"
        )  # type: ignore[arg-type]
        served = SearchSession(index, plan).run().found.hits
        assert [hit.document_id for hit in hits] == [hit.id for hit in served]


def test_the_mean_is_over_every_judged_query_and_rel_raises_the_bar(toy_data: Path) -> None:
    arguments = (*"evaluate --retriever lexical --split graded --measures".split(), "RR@10 R@10")
    one = call_json(*arguments, "--data", toy_data)
    two = call_json(*arguments, "--data", toy_data, "--rel", 2, "--per-query")
    assert one["measures"]["RR@10"] == two["measures"]["RR@10"] == 0.5  # q-none scores 0
    assert two["options"]["rel"] == 2
    assert two["per_query"]["R@10"] == {"q-bees": 1.0, "q-none": 0.0}
    assert "per_query" not in one


def test_people_get_a_table_and_programs_a_file(toy_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    arguments = ("--retriever", "lexical", "--data", toy_data, "--split", "dev", "--measures", "RR@10")
    shown = call("evaluate", *arguments, "--json", path)
    assert "RR@10" in shown and "1.0000" in shown
    assert json.loads(path.read_text())["measures"] == {"RR@10": 1.0}


def test_the_command_says_which_extra_it_lacks(toy_data: Path) -> None:
    """A process in which the extra `eval` cannot be imported, as after `pip install glow-retrieval`."""
    script = (
        "import runpy, sys\n"
        "sys.modules['ir_measures'] = sys.modules['bm25s'] = None\n"
        "sys.argv = ['glow', *sys.argv[1:]]\n"
        "runpy.run_module('glow', run_name='__main__')\n"
    )
    command = [sys.executable, "-c", script, "evaluate", "--retriever", "lexical", "--data", str(toy_data)]
    for measures, library in (("RR@10", "ir-measures"), ("NCG@10", "bm25s")):
        arguments = [*command, "--split", "dev", "--measures", measures]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 5
        for part in ("(dependency_missing)", library, "pip install glow-retrieval[eval]"):
            assert part in done.stderr


PERFECT = {"q-bees": "0 1", "q-ants": "1 0", "q-owls": "3 0"}
LATE = {"q-bees": "1 0", "q-ants": "0 2 1", "q-owls": "3"}
LOST = {"q-bees": "4", "q-ants": "1", "q-owls": "4 3"}


@pytest.fixture
def qrels(toy_data: Path) -> Path:
    """dev, with a split `train` beside it that shows the ants (toy/1) and nothing else of it."""
    (toy_data / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq-none\ttoy/1\t1\n")
    return toy_data / "qrels" / "dev.tsv"


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """perfect.trec, late.trec and lost.trec."""
    paths = []
    for name, rankings in {"perfect": PERFECT, "late": LATE, "lost": LOST}.items():
        lines = [
            f"{query} Q0 toy/{number} {rank} {1 / rank} {name}\n"
            for query, numbers in rankings.items()
            for rank, number in enumerate(numbers.split(), start=1)
        ]
        paths.append(tmp_path / f"{name}.trec")
        paths[-1].write_text("".join(lines))
    return paths


def test_a_written_run_compares_with_another(toy_data: Path, qrels: Path, tmp_path: Path) -> None:
    run = tmp_path / "lexical.trec"
    arguments = ("--data", toy_data, "--split", "dev", "--retriever", "lexical", "--run", run)
    measured = call_json("evaluate", *arguments)["measures"]
    body = call_json("compare", run, run, "--qrels", qrels, "--samples", 50)
    assert list(body) == list(measured)
    assert body["RR@10"]["mean_b"] == pytest.approx(measured["RR@10"], abs=1e-6)
    assert body["RR@10"]["queries"] == 3
    assert {item["p_value"] for item in body.values()} == {1.0}


def test_measures_of_the_papers_are_compared_by_their_name(qrels: Path, runs: list[Path]) -> None:
    body = call_json("compare", *runs[:2], "--qrels", qrels, "--samples", 10, "--measures", "papers")
    assert len(body) == 11
    assert body["P@20"]["mean_a"] == pytest.approx(0.05, rel=1e-12)
    assert body["ERR@20"]["mean_b"] == pytest.approx((1 / 32 + 1 / 48 + 1 / 16) / 3, abs=1e-6)


def test_judgments_in_trec_form_measure_the_same(qrels: Path, runs: list[Path], tmp_path: Path) -> None:
    rows = [line.split("\t") for line in qrels.read_text().splitlines()[1:]]
    trec = tmp_path / "dev.qrels"
    trec.write_text("".join(f"{query} 0 {document} {grade}\n" for query, document, grade in rows))
    one, two = (call_json("compare", *runs[:2], "--qrels", path, "--samples", 10) for path in (qrels, trec))
    assert one == two


def test_unseen_queries_are_reported_apart(qrels: Path, toy_data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/dev.tsv"):
        (other / name).write_bytes((toy_data / name).read_bytes())
    arguments = (*"evaluate --retriever lexical --split dev --measures RR@10 --unseen train".split(),)
    first, second = call_json(*arguments, "--data", toy_data, "--data", other, "--per-query")
    ids = ["q-bees", "q-owls"]
    assert first["unseen"] == {"split": "train", "queries": 2, "measures": {"RR@10": 1.0}, "ids": ids}
    assert "unseen" not in second  # that folder has no train split
    assert "unseen in train" in " ".join(call(*arguments, "--data", toy_data).split())
    without = (*arguments[:-1], "dev", "--data", toy_data)
    assert call_json(*without)["unseen"] == {"split": "dev", "queries": 0, "measures": {}}
    assert "│ 0" in call(*without)
    assert "no data folder has qrels/no-such.tsv" in refuse(*arguments[:-1], "no-such", "--data", toy_data)


def test_a_comparison_can_be_of_unseen_queries_alone(qrels: Path, runs: list[Path]) -> None:
    arguments = ("compare", *runs[:2], "--qrels", qrels, "--measures", "RR@10", "--samples", 50)
    body = call_json(*arguments, "--only-unseen", "train")
    assert (body["RR@10"]["queries"], body["RR@10"]["mean_b"]) == (2, 0.75)
    message = refuse(*arguments, "--only-unseen", "dev")
    assert "every query of dev.tsv has a relevant document that is also relevant in dev" in message


def test_several_systems_are_compared_with_one_baseline(qrels: Path, runs: list[Path]) -> None:
    arguments = ("compare", *runs, "--qrels", qrels, "--measures", "RR@10 P@5", "--samples", 200)
    body = call_json(*arguments)
    measures = ["RR@10", "P@5"]
    assert {label: list(item) for label, item in body.items()} == {"late": measures, "lost": measures}
    item = body["late"]["RR@10"]
    assert (item["mean_a"], item["mean_b"]) == (1.0, pytest.approx(0.611111, abs=1e-6))
    assert item["low"] <= item["difference"] <= item["high"]
    assert item["p_value"] <= item["p_holm"] <= 1.0
    assert item["t_p_value"] <= item["t_p_holm"] <= 1.0
    shown = call(*arguments, "--test", "t")
    assert "A perfect, B late, 3 queries, t test" in shown
    assert "A perfect, B lost, 3 queries, t test" in shown


def test_markdown_goes_to_standard_output_or_a_file(qrels: Path, runs: list[Path], tmp_path: Path) -> None:
    arguments = ("compare", *runs, "--qrels", qrels, "--measures", "RR@10", "--samples", 200)
    page = call(*arguments, "--markdown", "-")
    head = "| system | RR@10 |\n| --- | ---: |\n| perfect (baseline) | 1.0000 |"
    assert page.startswith(f"{head}\n| late | 0.6111 |\n")
    shown = call(*arguments, "--markdown", tmp_path / "page.md", "--json", tmp_path / "page.json")
    assert (tmp_path / "page.md").read_text() == page
    assert set(json.loads((tmp_path / "page.json").read_text())) == {"late", "lost"}
    assert "95 % interval" in shown


def test_files_of_one_name_are_told_apart_by_path(qrels: Path, runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    twin = tmp_path / "b" / "late.trec"
    twin.write_bytes(runs[1].read_bytes())
    arguments = ("--qrels", qrels, "--measures", "RR@10", "--samples", 50)
    assert list(call_json("compare", runs[0], runs[1], twin, *arguments)) == [str(runs[1]), str(twin)]
    assert "given twice" in refuse("compare", runs[0], twin, twin, *arguments)


def test_what_cannot_be_done_is_refused_with_a_reason(
    toy_model: Path, toy_data: Path, toy_index: Path, qrels: Path, runs: list[Path], tmp_path: Path
) -> None:
    other = tmp_path / "other.trec"
    other.write_text("stranger Q0 toy/0 1 1.0 tag\n")
    good = ("evaluate", "--model", toy_model, "--data", toy_data, "--split", "dev")
    lexical = ("evaluate", "--retriever", "lexical", *good[3:])
    compared = ("compare", *runs, "--samples", 9, "--qrels")
    cases: dict[str, tuple[object, ...]] = {
        "unknown measure 'NCG@x'": (*good, "--measures", "NCG@x"),
        "R@500 needs 500 hits, and the run holds 200; raise --top-k": (*good, "--measures", "R@500"),
        "--rel must be at least 1": (*good, "--rel", 0),
        "no measure was given": (*good, "--measures", " "),
        "has no qrels/SPLIT.tsv for test; found dev, graded": (*good[:-1], "test"),
        "no data folder has qrels/test.tsv": (*good, "--split", "test"),
        "--run writes a single run": (*good, "--split", "graded", "--run", tmp_path / "run"),
        "(artifact_not_found): no model at": ("evaluate", "--model", tmp_path, *good[3:]),
        "cannot write": (*good, "--json", tmp_path / "no" / "report.json"),
        "--per-query adds to the JSON: give --json": (*lexical, "--per-query"),
        "--index-root has its own model": (*good, "--index-root", toy_index),
        "give --index-root": (*good, "--rerank", 20),
        "there is no no-such.tsv beside": (*compared, qrels, "--only-unseen", "no-such"),
        "other.trec holds none of the judged queries of dev.tsv": ("compare", other, *compared[1:], qrels),
        "cannot read": (*compared, qrels.parent / "none.tsv"),
        "standard output takes one report": (*compared, qrels, "--json", "-", "--markdown", "-"),
    }
    for message, arguments in cases.items():
        assert message in refuse(*arguments, code=3 if "artifact" in message else 2), message
    with pytest.raises(MismatchError, match="has no re-ranker"):
        open_version(toy_index, "dense", reranking=Reranking(20))


def test_a_damaged_model_is_refused_by_file(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    model = tmp_path / "damaged"
    shutil.copytree(toy_model, model)
    content = bytearray((model / "query.onnx").read_bytes())
    content[1000] ^= 1
    (model / "query.onnx").write_bytes(content)
    message = refuse("evaluate", "--model", model, "--data", toy_data, "--split", "dev", code=3)
    assert "(artifact_damaged): damaged/query.onnx" in message


def call_peers(*arguments: object) -> Any:
    command = typer.Typer(rich_markup_mode=None)
    command.command()(peers.main)
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_each_peer_leaves_a_run_and_its_measures(toy_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="TF-IDF needs scikit-learn, of the extra dev")
    report, runs = tmp_path / "report.json", tmp_path / "runs"
    arguments = ("--data", toy_data, "--split", "dev", "--split", "graded", "--out", runs)
    named = ("--peer", "bm25", "--peer", "tfidf", "--measures", "RR@10", "--json", report)
    assert call_peers(*arguments, *named).exit_code == 0
    expected = [
        ("dev", "bm25", 1.0),
        ("graded", "bm25", 0.5),
        ("dev", "tfidf", 1.0),
        ("graded", "tfidf", 0.5),
    ]
    reports = json.loads(report.read_text())
    assert [(each["split"], each["retriever"], each["measures"]["RR@10"]) for each in reports] == expected
    assert {path.name for path in runs.iterdir()} == {
        f"toy-{split}.{peer}.trec" for split, peer, _ in expected
    }
    run = read_run(runs / "toy-dev.tfidf.trec")
    assert run["q-bees"][0].document_id == "toy/0"
    assert all(0.0 < hit.score <= 1.0 for hits in run.values() for hit in hits)


def test_an_unknown_peer_is_refused(toy_data: Path, tmp_path: Path) -> None:
    done = call_peers("--data", toy_data, "--split", "dev", "--out", tmp_path / "runs", "--peer", "bm42")
    assert done.exit_code == 2
    assert "no peer 'bm42'" in done.output
    assert not (tmp_path / "runs").exists()
