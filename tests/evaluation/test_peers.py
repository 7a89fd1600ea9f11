"""`benchmarks/peers.py`: other retrievers over the same data, through the same measures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from glow.evaluation import read_run

ROOT = Path(__file__).parent.parent.parent


def peers(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.peers", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_each_peer_leaves_a_run_and_its_measures(toy_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="TF-IDF needs scikit-learn, of the extra dev")
    pytest.importorskip("torch", reason="documents are joined by glow.training, which needs torch")
    report = tmp_path / "report.json"
    arguments = ("--data", toy_data, "--split", "dev", "--split", "graded", "--out", tmp_path / "runs")
    done = peers(*arguments, "--peer", "bm25", "--peer", "tfidf", "--measures", "RR@10", "--json", report)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == [f"toy-{split}.{peer}.trec" for split in ("dev", "graded") for peer in ("bm25", "tfidf")]
    assert [
        (body["split"], body["retriever"], body["measures"]["RR@10"])
        for body in json.loads(report.read_text())
    ] == [
        *(("dev", "bm25", 1.0), ("graded", "bm25", 0.5)),
        *(("dev", "tfidf", 1.0), ("graded", "tfidf", 0.5)),
    ]
    run = read_run(tmp_path / "runs" / "toy-dev.tfidf.trec")
    assert run["q-bees"][0].document_id == "toy/0"
    assert all(0.0 < hit.score <= 1.0 for hits in run.values() for hit in hits)


def test_an_unknown_peer_is_refused(toy_data: Path, tmp_path: Path) -> None:
    done = peers("--data", toy_data, "--split", "dev", "--out", tmp_path / "runs", "--peer", "bm42")
    assert done.returncode == 2
    assert "no peer 'bm42'" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_bm25_reaches_its_known_figures_on_tldr(shared_data: Path, tmp_path: Path) -> None:
    """The baseline that models are held against: MRR@10, nDCG@10 and recall@100 to three digits."""
    report = tmp_path / "report.json"
    arguments = ("--data", shared_data / "tldr", "--split", "dev", "--out", tmp_path, "--peer", "bm25")
    done = peers(*arguments, "--json", report)
    assert done.returncode == 0, done.stderr
    measures = json.loads(report.read_text())["measures"]
    expected = {"RR@10": 0.493, "nDCG@10": 0.532, "R@100": 0.831}
    assert {name: round(measures[name], 3) for name in expected} == expected
