"""`glow evaluate` and `glow compare`: what the commands print, write and refuse."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

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

ROOT = Path(__file__).parent.parent.parent


def call(*arguments: object) -> str:
    """Runs a command that must succeed; returns standard output."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def refuse(*arguments: object, code: int = 2) -> str:
    """Runs a command that must be refused; returns the message."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    return " ".join(result.stderr.split())


def run_json(*arguments: object) -> Any:
    return json.loads(call("evaluate", *arguments, "--json", "-"))


@pytest.mark.parametrize("retriever", ["dense", "lexical", "hybrid"])
def test_the_report_has_the_documented_shape(toy_model: Path, toy_data: Path, retriever: str) -> None:
    body = run_json("--model", toy_model, "--data", toy_data, "--split", "dev", "--retriever", retriever)
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
    both = run_json("--model", toy_model, "--data", toy_data, "--split", "dev", "--split", "graded")
    assert len(calls) == 1
    assert [body["split"] for body in both] == ["dev", "graded"]
    assert both[0] == run_json("--model", toy_model, "--data", toy_data, "--split", "dev")


@pytest.mark.parametrize("retriever", ["dense", "lexical", "hybrid"])
def test_an_index_is_measured_as_it_is_served(
    toy_index: Path, toy_data: Path, tmp_path: Path, retriever: str
) -> None:
    run = tmp_path / "served.trec"
    arguments = ("--data", toy_data, "--split", "dev", "--retriever", retriever)
    body = run_json(*arguments, "--index-root", toy_index, "--run", run)
    assert body["model"].startswith("toy-model@sha256:")
    index = live(toy_index)
    for query_id, hits in read_run(run).items():
        (query,) = [query for query in read_queries(toy_data / "queries.jsonl") if query.id == query_id]
        call = SearchPlan(query.text, len(hits), 0, 200, SearchParams(), retriever, match="any")  # type: ignore[arg-type]
        served = SearchSession(index, call).run().found.hits
        assert [hit.document_id for hit in hits] == [hit.id for hit in served]
    refused = refuse("evaluate", *arguments, "--index-root", toy_index, "--cache", tmp_path)
    assert "--index-root has its own model" in refused


@pytest.mark.parametrize("retriever", ["dense", "lexical", "hybrid"])
def test_re_ranking_is_measured_as_it_is_served(
    rerank_index: Path, toy_index: Path, toy_data: Path, tmp_path: Path, retriever: str
) -> None:
    run = tmp_path / "served.trec"
    arguments = ("--data", toy_data, "--split", "dev", "--retriever", retriever, "--rerank", 20)
    assert run_json(*arguments, "--index-root", rerank_index, "--run", run)["options"]["rerank"] == 20
    index = live(rerank_index)
    for query_id, hits in read_run(run).items():
        (query,) = [query for query in read_queries(toy_data / "queries.jsonl") if query.id == query_id]
        call = SearchPlan(
            query.text, len(hits), 0, 200, SearchParams(), retriever, rerank=Reranking(20), match="any"
        )  # type: ignore[arg-type]
        served = SearchSession(index, call).run().found.hits
        assert [hit.document_id for hit in hits] == [hit.id for hit in served]
    assert "give --index-root" in refuse("evaluate", *arguments)
    with pytest.raises(MismatchError, match="has no re-ranker"):
        open_version(toy_index, "dense", reranking=Reranking(20))


def test_the_mean_is_over_every_judged_query_and_rel_raises_the_bar(toy_data: Path) -> None:
    arguments = (*"--retriever lexical --split graded --measures".split(), "RR@10 R@10", "--data", toy_data)
    one, two = run_json(*arguments), run_json(*arguments, "--rel", 2, "--per-query")
    assert one["measures"]["RR@10"] == two["measures"]["RR@10"] == 0.5  # q-none scores 0
    assert two["options"]["rel"] == 2
    assert two["per_query"]["R@10"] == {"q-bees": 1.0, "q-none": 0.0}
    assert "per_query" not in one


def test_people_get_a_table_and_programs_a_file(toy_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    arguments = ("--retriever", "lexical", "--data", toy_data, "--split", "dev", "--measures", "RR@10")
    shown = call("evaluate", *arguments, "--json", path)
    assert "RR@10" in shown
    assert "1.0000" in shown
    assert json.loads(path.read_text())["measures"] == {"RR@10": 1.0}


def test_a_written_run_compares_with_another(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    runs = []
    for retriever in ("dense", "lexical"):
        runs.append(tmp_path / f"{retriever}.trec")
        found = run_json(
            *("--model", toy_model, "--data", toy_data, "--split", "dev", "--retriever", retriever),
            *("--run", runs[-1]),
        )
    qrels = toy_data / "qrels" / "dev.tsv"
    body = json.loads(call("compare", *runs, "--qrels", qrels, "--json", "-", "--samples", 200))
    assert list(body) == list(found["measures"])
    assert body["RR@10"]["mean_b"] == pytest.approx(found["measures"]["RR@10"], abs=1e-6)
    assert body["RR@10"]["low"] <= body["RR@10"]["difference"] <= body["RR@10"]["high"]
    assert body["RR@10"]["queries"] == 3
    assert "95 % interval" in call("compare", *runs, "--qrels", qrels, "--samples", 200)
    same = json.loads(call("compare", runs[1], runs[1], "--qrels", qrels, "--json", "-", "--samples", 50))
    assert {item["p_value"] for item in same.values()} == {1.0}


def test_a_run_of_other_queries_is_refused(toy_data: Path, tmp_path: Path) -> None:
    (tmp_path / "other.trec").write_text("stranger Q0 toy/0 1 1.0 tag\n")
    run, qrels = tmp_path / "other.trec", toy_data / "qrels" / "dev.tsv"
    assert "other.trec holds none of the judged queries" in refuse("compare", run, run, "--qrels", qrels)


def test_what_cannot_be_evaluated_is_refused_and_why(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    good = ("evaluate", "--model", toy_model, "--data", toy_data, "--split", "dev")
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
    }
    for message, arguments in cases.items():
        assert message in refuse(*arguments, code=3 if "artifact" in message else 2), message


def test_a_damaged_model_is_refused_by_file(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    model = tmp_path / "damaged"
    shutil.copytree(toy_model, model)
    content = bytearray((model / "query.onnx").read_bytes())
    content[1000] ^= 1
    (model / "query.onnx").write_bytes(content)
    message = refuse("evaluate", "--model", model, "--data", toy_data, "--split", "dev", code=3)
    assert "(artifact_damaged): damaged/query.onnx" in message


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
        assert "(dependency_missing)" in done.stderr
        assert library in done.stderr
        assert "pip install glow-retrieval[eval]" in done.stderr
