"""`glow compare`, and `glow evaluate --unseen`: what is done with TREC run files and other splits."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glow.cli import app

PERFECT = {"q-bees": "0 1", "q-ants": "1 0", "q-owls": "3 0"}
LATE = {"q-bees": "1 0", "q-ants": "0 2 1", "q-owls": "3"}
LOST = {"q-bees": "4", "q-ants": "1", "q-owls": "4 3"}


def invoke(code: int, *arguments: object) -> str:
    """Runs a command that must end with a code; returns standard output, or the message where it is refused."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.stderr.split())


def call(*arguments: object) -> str:
    return invoke(0, *arguments)


def call_json(*arguments: object) -> Any:
    return json.loads(call(*arguments, "--json", "-"))


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


def test_measures_of_the_papers_are_compared_by_their_name(qrels: Path, runs: list[Path]) -> None:
    found = call_json("compare", *runs[:2], "--qrels", qrels, "--samples", 10, "--measures", "papers")
    assert len(found) == 11
    assert found["P@20"]["mean_a"] == pytest.approx(0.05, rel=1e-12)
    assert found["ERR@20"]["mean_b"] == pytest.approx((1 / 32 + 1 / 48 + 1 / 16) / 3, abs=1e-6)


def test_judgements_in_trec_form_measure_the_same(qrels: Path, runs: list[Path], tmp_path: Path) -> None:
    rows = [line.split("\t") for line in qrels.read_text().splitlines()[1:]]
    trec = tmp_path / "dev.qrels"
    trec.write_text("".join(f"{query} 0 {document} {grade}\n" for query, document, grade in rows))
    one, two = (call_json("compare", *runs[:2], "--qrels", path, "--samples", 10) for path in (qrels, trec))
    assert one == two


def test_run_reports_the_unseen_part_too(qrels: Path, toy_data: Path, tmp_path: Path) -> None:
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
    assert "no data folder has qrels/no-such.tsv" in invoke(2, *arguments[:-1], "no-such", "--data", toy_data)


def test_several_systems_are_compared_with_one_baseline(qrels: Path, runs: list[Path]) -> None:
    arguments = ("compare", *runs, "--qrels", qrels, "--measures", "RR@10 P@5", "--samples", 200)
    found = call_json(*arguments)
    measures = ["RR@10", "P@5"]
    assert {label: list(item) for label, item in found.items()} == {"late": measures, "lost": measures}
    item = found["late"]["RR@10"]
    assert (item["mean_a"], item["mean_b"]) == (1.0, pytest.approx(0.611111, abs=1e-6))
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


def test_a_comparison_can_be_of_unseen_queries_alone(qrels: Path, runs: list[Path]) -> None:
    arguments = ("compare", *runs[:2], "--qrels", qrels, "--measures", "RR@10", "--samples", 50)
    found = call_json(*arguments, "--only-unseen", "train")
    assert (found["RR@10"]["queries"], found["RR@10"]["mean_b"]) == (2, 0.75)
    message = invoke(2, *arguments, "--only-unseen", "dev")
    assert "every query of dev.tsv has a relevant document that is also relevant in dev" in message


def test_files_of_one_name_are_told_apart_by_path(qrels: Path, runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    twin = tmp_path / "b" / "late.trec"
    twin.write_bytes(runs[1].read_bytes())
    arguments = ("--qrels", qrels, "--measures", "RR@10", "--samples", 50)
    assert list(call_json("compare", runs[0], runs[1], twin, *arguments)) == [str(runs[1]), str(twin)]
    assert "given twice" in invoke(2, "compare", runs[0], twin, twin, *arguments)


def test_what_cannot_be_done_is_refused_with_a_reason(qrels: Path, toy_data: Path, runs: list[Path]) -> None:
    (runs[0].parent / "other.trec").write_text("stranger Q0 toy/0 1 1.0 tag\n")
    other, given = runs[0].parent / "other.trec", ("compare", *runs, "--samples", 9, "--qrels")
    evaluate = ("evaluate", "--retriever", "lexical", "--data", toy_data, "--split", "dev")
    cases: dict[str, tuple[object, ...]] = {
        "--per-query adds to the JSON: give --json": (*evaluate, "--per-query"),
        "there is no no-such.tsv beside": (*given, qrels, "--only-unseen", "no-such"),
        "other.trec holds none of the judged queries of dev.tsv": ("compare", other, *given[1:], qrels),
        "cannot read": (*given, qrels.parent / "none.tsv"),
        "standard output takes one report": (*given, qrels, "--json", "-", "--markdown", "-"),
        "unknown measure 'paper'": (*given, qrels, "--measures", "paper"),
    }
    for message, arguments in cases.items():
        assert message in invoke(2, *arguments), message
