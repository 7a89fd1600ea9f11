"""`glow {measure,fuse,compare,failures}`: what is done with TREC run files."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glow.cli import app
from glow.evaluation import fuse, read_run

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


def test_any_run_file_is_measured_query_by_query(qrels: Path, runs: list[Path]) -> None:
    found = call_json("measure", runs[1], "--qrels", qrels, "--measures", "RR@10 ERR@20", "--per-query")
    assert list(found) == ["run", "qrels", "queries", "measures", "options", "per_query"]
    assert (found["run"], found["qrels"], found["queries"]) == ("late", "dev.tsv", 3)
    assert found["options"] == {"rel": 1, "depth": 3}
    assert found["per_query"]["RR@10"] == pytest.approx({"q-bees": 1 / 2, "q-ants": 1 / 3, "q-owls": 1})
    assert found["measures"]["ERR@20"] == pytest.approx((1 / 32 + 1 / 48 + 1 / 16) / 3, abs=1e-6)


def test_several_run_files_are_a_list_and_columns_of_one_table(qrels: Path, runs: list[Path]) -> None:
    found = call_json("measure", *runs, "--qrels", qrels, "--measures", "papers")
    assert [item["run"] for item in found] == ["perfect", "late", "lost"]
    assert found[0]["measures"]["P@20"] == 0.05
    assert len(found[0]["measures"]) == 11
    shown = call("measure", *runs, "--qrels", qrels, "--measures", "RR@10")
    assert all(word in shown for word in ("perfect", "late", "lost", "1.0000", "0.6111"))


def test_judgements_in_the_form_of_trec_measure_the_same(
    qrels: Path, runs: list[Path], tmp_path: Path
) -> None:
    rows = [line.split("\t") for line in qrels.read_text().splitlines()[1:]]
    trec = tmp_path / "dev.qrels"
    trec.write_text("".join(f"{query} 0 {document} {grade}\n" for query, document, grade in rows))
    one, two = (call_json("measure", runs[1], "--qrels", path) for path in (qrels, trec))
    assert one["measures"] == two["measures"]


def test_unseen_sets_queries_apart_whose_documents_the_split_did_not_show(
    qrels: Path, runs: list[Path]
) -> None:
    arguments = ("measure", runs[1], "--qrels", qrels, "--measures", "RR@10", "--unseen", "train")
    found = call_json(*arguments, "--per-query")
    assert found["measures"]["RR@10"] == pytest.approx((1 / 2 + 1 / 3 + 1) / 3, abs=1e-6)
    ids = ["q-bees", "q-owls"]
    assert found["unseen"] == {"split": "train", "queries": 2, "measures": {"RR@10": 0.75}, "ids": ids}
    assert "unseen in train" in " ".join(call(*arguments).split())


def test_unseen_without_any_such_query_says_so(qrels: Path, runs: list[Path]) -> None:
    arguments = ("measure", runs[1], "--qrels", qrels, "--measures", "RR@10", "--unseen", "dev")
    assert call_json(*arguments)["unseen"] == {"split": "dev", "queries": 0, "measures": {}}
    assert "│ 0" in call(*arguments)


def test_run_reports_the_unseen_part_too(qrels: Path, toy_data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/dev.tsv"):
        (other / name).write_bytes((toy_data / name).read_bytes())
    arguments = (
        "evaluate",
        "--retriever",
        "lexical",
        "--split",
        "dev",
        "--measures",
        "RR@10",
        "--unseen",
        "train",
    )
    first, second = call_json(*arguments, "--data", toy_data, "--data", other)
    assert first["unseen"] == {"split": "train", "queries": 2, "measures": {"RR@10": 1.0}}
    assert "unseen" not in second  # that folder has no train split
    message = invoke(2, *arguments[:-1], "no-such", "--data", toy_data)
    assert "no data folder has qrels/no-such.tsv" in message


def test_run_files_are_fused_by_reciprocal_ranks(toy_model: Path, toy_data: Path, tmp_path: Path) -> None:
    paths = {kind: tmp_path / f"{kind}.trec" for kind in ("dense", "lexical", "fused")}
    base = ("evaluate", "--model", toy_model, "--data", toy_data, "--split", "dev", "--top-k", 10)
    for kind in ("dense", "lexical"):
        call(*base, "--measures", "RR@10", "--retriever", kind, "--run", paths[kind])
    call("fuse", paths["lexical"], paths["dense"], "--out", paths["fused"], "--top-k", 10)
    assert read_run(paths["fused"]) == fuse([read_run(paths[kind]) for kind in ("lexical", "dense")], 10)
    call("fuse", paths["lexical"], paths["dense"], "--out", paths["fused"], "--k", 1, "--top-k", 1)
    assert {len(hits) for hits in read_run(paths["fused"]).values()} == {1}
    assert read_run(paths["fused"])["q-bees"][0].score in (1 / 2, 1.0)


def test_several_systems_are_compared_with_one_baseline(qrels: Path, runs: list[Path]) -> None:
    arguments = ("compare", *runs, "--qrels", qrels, "--measures", "RR@10 P@5", "--samples", 200)
    found = call_json(*arguments)
    assert {label: list(item) for label, item in found.items()} == {
        "late": ["RR@10", "P@5"],
        "lost": ["RR@10", "P@5"],
    }
    item = found["late"]["RR@10"]
    assert (item["mean_a"], item["mean_b"]) == (1.0, pytest.approx(0.611111, abs=1e-6))
    assert item["p_value"] <= item["p_holm"] <= 1.0
    assert item["t_p_value"] <= item["t_p_holm"] <= 1.0
    shown = call(*arguments, "--test", "t")
    assert "A perfect, B late, 3 queries, t test" in shown
    assert "A perfect, B lost, 3 queries, t test" in shown


def test_a_markdown_page_goes_to_standard_output_or_a_file(
    qrels: Path, runs: list[Path], tmp_path: Path
) -> None:
    arguments = ("compare", *runs, "--qrels", qrels, "--measures", "RR@10", "--samples", 200)
    page = call(*arguments, "--markdown", "-")
    assert page.startswith(
        "| system | RR@10 |\n| --- | ---: |\n| perfect (baseline) | 1.0000 |\n| late | 0.6111 |\n"
    )
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


def test_files_of_one_name_are_told_apart_by_their_paths(
    qrels: Path, runs: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    twin = tmp_path / "b" / "late.trec"
    twin.write_bytes(runs[1].read_bytes())
    arguments = ("--qrels", qrels, "--measures", "RR@10", "--samples", 50)
    assert list(call_json("compare", runs[0], runs[1], twin, *arguments)) == [str(runs[1]), str(twin)]
    assert "given twice" in invoke(2, "compare", runs[0], twin, twin, *arguments)


def test_failures_name_queries_documents_and_first_hits(
    qrels: Path, toy_data: Path, runs: list[Path]
) -> None:
    arguments = ("failures", *runs[1:], "--data", toy_data, "--split", "dev", "--measure", "RR@10")
    page = call(*arguments, "--hits", 1)
    assert page.startswith(
        "# lost against late on toy dev\n\nRR@10: 0.6111 → 0.5000 (-0.1111); queries: 1 won, 2 lost"
    )
    assert (
        "- relevant (grade 1): Ants `toy/1`, rank 3 → 1\n- late 1: Bees `toy/0`\n- lost 1: Ants `toy/1` (grade 1)\n"
        in page
    )
    body = json.loads(call(*arguments, "--top", 1, "--json", "-"))
    assert (body["baseline_run"], body["system_run"], body["data"], body["split"]) == (
        "late",
        "lost",
        "toy",
        "dev",
    )
    assert body["counts"] == {"won": 1, "lost": 2, "alike": 0}
    assert [change["query_id"] for change in body["lost"]] == ["q-bees"]
    assert body["lost"][0]["relevant"][0] == {
        "id": "toy/0",
        "title": "Bees",
        "grade": 1,
        "baseline_rank": 2,
        "system_rank": None,
    }


def test_what_cannot_be_done_is_refused_with_the_reason(
    qrels: Path, toy_data: Path, runs: list[Path]
) -> None:
    (runs[0].parent / "other.trec").write_text("stranger Q0 toy/0 1 1.0 tag\n")
    other, out = runs[0].parent / "other.trec", runs[0].parent / "out.trec"
    measure, compare = ("measure", runs[0], "--qrels", qrels), ("compare", *runs, "--qrels", qrels)
    failures = ("failures", *runs[:2], "--data", toy_data, "--split")
    cases: dict[str, tuple[object, ...]] = {
        "--per-query adds to the JSON: give --json": (*measure, "--per-query"),
        "there is no no-such.tsv beside": (*measure, "--unseen", "no-such"),
        "other.trec holds none of the judged queries of dev.tsv": ("measure", other, *measure[2:]),
        "cannot read": ("measure", runs[0], "--qrels", qrels.parent / "none.tsv"),
        "fusion needs two runs or more, found 1": ("fuse", runs[0], "--out", out),
        "other.trec and perfect.trec have no query in common": ("fuse", runs[0], other, "--out", out),
        "standard output takes one report": (*compare, "--json", "-", "--markdown", "-", "--samples", 9),
        "has no qrels/SPLIT.tsv for test": (*failures, "test"),
        "unknown measure 'papers'": (*failures, "dev", "--measure", "papers"),
    }
    for message, arguments in cases.items():
        assert message in invoke(2, *arguments), message
    assert not out.exists()
