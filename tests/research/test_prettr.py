"""`python -m research prettr` trains each arm once for a seed, resumes, and compares arms by query and seed."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from glow.evaluation import write_run
from glow.records import Hit
from research.folders import write_folder
from research.prettr import Study, app, difference, judged, tables

WORDS = "bees find their way home by the sun and dance honey bread water salt boil oven bake clay".split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty texts, each the result of a query; the run of both splits misses that of the first query."""
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, 6)) for _ in range(20)]
    ids = [f"d{number}" for number in range(20)]
    documents = [{"_id": name, "title": text} for name, text in zip(ids, texts, strict=True)]
    queries = [{"_id": name, "text": text[:12]} for name, text in zip(ids, texts, strict=True)]
    relevant = {name: [name] for name in ids}
    write_folder(tmp_path / "toy", documents, queries, {"train": relevant, "dev": relevant})
    run = {
        name: [Hit(ids[(at + step) % 20], 1.0 - step / 10) for step in range(at == 0, 5)]
        for at, name in enumerate(ids)
    }
    write_run(tmp_path / "toy.trec", run, "toy")
    return tmp_path


def test_arms_are_measured_once_and_a_second_call_trains_nothing(folder: Path) -> None:
    out = folder / "out"
    run = str(folder / "toy.trec")
    given = ["rank", "--data", str(folder / "toy"), "--train-run", run, "--dev-run", run, "--out", str(out)]
    arguments = [*given, "--arms", "late1,both1", "--seeds", "0", "--steps", "2", "--layers", "0,5"]
    done = CliRunner().invoke(app, [*arguments, "--queries", "9"])
    assert done.exit_code == 0, done.output
    lines = (out / "results.jsonl").read_text().splitlines()
    found = {each["arm"]: each for each in map(json.loads, lines)}
    assert list(found) == ["first", "late1", "both1"]
    assert all(len(each["ndcg"]) == 9 for each in found.values())
    alone, both = (found[name]["losses"] for name in ("late1", "both1"))
    assert alone[0] == both[0] and alone[1] != both[1]  # joined layers start at 0 and learn
    again = CliRunner().invoke(app, [*arguments, "--queries", "9"])
    assert again.output == "" and (out / "results.jsonl").read_text().splitlines() == lines


def test_a_query_without_a_relevant_candidate_counts_as_0(folder: Path) -> None:
    candidates, qrels = judged(folder / "toy", folder / "toy.trec", "dev", 20)
    assert len(candidates.rows) == 19 and len({each.query_id for each in qrels}) == 20
    assert sorted(Study(folder, folder, candidates, qrels).first()["ndcg"]) == [0] + [10_000] * 19


def test_a_difference_pairs_queries_and_seeds() -> None:
    base = np.random.default_rng(0).random((3, 200))
    mean, low, high = difference(base + 0.1, base)
    assert np.allclose([mean, low, high], 0.1)
    _, low, high = difference(base + np.array([[0.3], [0.0], [0.0]]), base)
    assert np.isclose(low, 0.0) and high > 0.1  # the seeds differ, the queries do not
    row = {"seed": 0, "means": {"nDCG@10": 0.5, "RR@10": 0.4}, "ndcg": [5000]}
    rows = [{"arm": arm, **row} for arm in ("l0", "l1")]
    assert tables(rows)[-1] == "|l1-l0|1|+0.000 (+0.000 to +0.000)|"
