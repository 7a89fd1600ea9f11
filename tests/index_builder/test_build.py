"""A build makes a version that opens, answers, says how it was made, and is live."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import IndexRoot, model
from glow.artifact.model import EXPLAIN_FILES, query_side_files
from glow.collection import read_documents
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow.runtime import Model
from glow.text import TermTable
from glow_index_builder.encoding.text_encoder import CPU_BATCH_TOKENS
from tests.index_builder.conftest import HAS_CUDA, STAGES, LinesFile, Live, Run, names, report_of, search
from tests.made_index import opened


def test_a_published_build_answers(build: Run, output: Path, toy_corpus: Path, live: Live) -> None:
    done = build(toy_corpus)
    assert done.exit_code == 0, done.stderr
    index = live()
    assert search(index, "how do bees find the way home")[0] == "toy/0"
    assert names(output) == sorted(["CURRENT", index.version])
    assert (
        names(output / index.version)
        == (
            "columns documents.sqlite impacts manifest.json model report.json spelling stems terms vectors.faiss"
        ).split()
    )
    assert f"published {index.version}" in done.stdout


def test_vectors_are_those_of_the_model_under_the_index_s_own_term_table(
    build: Run, toy_model: Path, toy_corpus: Path, lines_file: LinesFile, live: Live
) -> None:
    lines = toy_corpus.read_bytes().splitlines()[:12]
    assert build(lines_file([*lines])).exit_code == 0
    index, model = live(), Model.open(toy_model)
    documents = list(index[STORED_FIELDS].scan())
    assert [document.id for document in documents] == [f"toy/{number}" for number in range(12)]
    stored = index[VECTORS]._index.reconstruct_n(0, 12)  # type: ignore[attr-defined]  # the part itself, behind its view
    # The same batches give the same bits; the toy's towers hardly feel weights, so nothing less would tell.
    encoder = model.encoder("document", batch_tokens=CPU_BATCH_TOKENS)
    own = model.with_terms(index.preprocessor.terms)
    for preprocessor, belongs in ((own, True), (model.preprocessor, False)):
        expected = encoder.encode([preprocessor.document(document) for document in documents])
        np.testing.assert_allclose(stored, expected, atol=1e-4)
        assert np.array_equal(stored, expected) is belongs


def test_documents_are_stored_as_they_came(toy_index: Path, toy_model: Path, toy_corpus: Path) -> None:
    names_of_fields = Model.open(toy_model).preprocessor.schema.names
    for stored, given in zip(
        opened(IndexRoot(toy_index))[STORED_FIELDS].scan(),
        read_documents(toy_corpus, names_of_fields),
        strict=True,
    ):
        assert (stored.id, stored.metadata) == (given.id, given.metadata)
        assert stored.fields == {name: values for name, values in given.fields.items() if values}


def test_the_manifest_binds_model_and_term_table(toy_index: Path, toy_model: Path) -> None:
    manifest, model = opened(IndexRoot(toy_index)).manifest, Model.open(toy_model)
    assert manifest.hashes["model"] == model.hash
    assert manifest.hashes["terms"] == TermTable.load(toy_index / manifest.name / "terms").hash
    files = {
        name: hashlib.sha256((toy_model / name).read_bytes()).hexdigest()
        for name in (*query_side_files(model.manifest.files), *EXPLAIN_FILES)
    }
    assert manifest.parents == {"model": {"name": "toy-model", "hash": model.hash, "files": files}}
    assert manifest.counts == {"documents": 50, "dimensions": 32, "rejects": 0}
    assert manifest.parameters["kind"] == "flat"
    assert manifest.parameters["term_stats"] == "corpus"


def test_the_report_tells_counts_times_truncation_index_recall_and_terms(
    build: Run, output: Path, toy_corpus: Path, tmp_path: Path, live: Live
) -> None:
    assert build(toy_corpus, "--json", tmp_path / "report.json").exit_code == 0
    report = report_of(tmp_path / "report.json")
    stored = report_of(output / report["version"])
    assert report.pop("published") is True
    assert {**report, "seconds": 0} == {**stored, "seconds": 0, "skipped": {}}
    assert report["status"] == "built"
    assert report["model"] == {"name": "toy-model", "hash": live().manifest.hashes["model"]}
    size_bytes = toy_corpus.stat().st_size
    counts = {"documents": 50, "reused": 0, "rejects": 0, "lines": 50, "read_bytes": size_bytes}
    assert report["counts"] == counts
    assert (report["rejects"], report["truncated"]["url"]) == ({}, 50)
    assert (report["terms"]["source"], report["terms"]["documents"]) == ("corpus", 50)
    assert report["index"]["kind"] == "flat"
    assert "50 documents are few enough" in report["index"]["why"]
    assert report["index"]["size_bytes"] == (output / report["version"] / "vectors.faiss").stat().st_size
    assert report["recall"] == {"recall": 1.0, "depth": 10, "queries": 50, "seed": 0}
    assert list(report["seconds"]) == [*STAGES, "total"]
    assert all(took >= 0 for took in report["seconds"].values())
    assert report["documents_per_second"]["total"] > 0
    assert report["peak_memory_bytes"] > 10_000_000
    peaks = report["stage_peak_memory_bytes"]
    assert set(peaks) == {*report["seconds"], "worker"} - {"check", "total"}
    assert max(peaks.values()) == report["peak_memory_bytes"]
    assert 0 < report["shards"].pop("seconds") <= report["seconds"]["total"]
    counts = {"documents": 256, "count": 1, "resumed": 0, "failures": 0}
    assert report["shards"] == {**counts, "runner": "local", "workers": 1}


def test_the_same_input_gives_the_same_files(build: Run, output: Path, toy_corpus: Path) -> None:
    for threads in (1, 2):
        assert build(toy_corpus, "--threads", threads).exit_code == 0
    first, second = (IndexRoot(output).manifest(version).files for version in IndexRoot(output).versions())
    assert {name for name in first if first[name] != second[name]} == {"report.json"}


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_kind_that_was_asked_for_is_built(
    build: Run, toy_corpus: Path, kind: str, tmp_path: Path, live: Live
) -> None:
    assert build(toy_corpus, "--index", kind, "--json", tmp_path / "r.json").exit_code == 0
    report = report_of(tmp_path / "r.json")
    assert live()[VECTORS].kind == report["index"]["kind"] == kind
    assert report["index"]["why"] == "asked for by --index"
    assert report["recall"]["recall"] > 0.9


def test_an_index_that_is_compressed_for_memory_says_so(
    build: Run, lines_file: LinesFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, live: Live
) -> None:
    monkeypatch.setattr("glow.index.vectors.build.FLAT_MAX_VECTORS", 100)
    file = lines_file([{"_id": str(number), "title": f"bees {number}"} for number in range(2700)])
    done = build(file, "--memory-mb", 1, "--json", tmp_path / "r.json")
    assert done.exit_code == 0
    report = report_of(tmp_path / "r.json")
    assert ("that recall is under 0.95" in done.stdout) is (report["recall"]["recall"] < 0.95)
    assert report["index"]["kind"] == live()[VECTORS].kind == "ivf-pq"
    assert "about 1 MiB does not fit into --memory-mb 1" in report["index"]["why"]


def test_term_statistics_come_from_where_they_are_asked_from(
    build: Run, lines_file: LinesFile, toy_model: Path, live: Live
) -> None:
    file = lines_file([{"_id": "a", "title": "bees bees"}, {"_id": "b", "title": "bees and robots"}])
    model = Model.open(toy_model).preprocessor.terms
    expected = {"corpus": (2, 2, 1), "model": (50, model.df("bees"), 0)}
    for source, (documents, bees, robots) in expected.items():
        assert build(file, "--term-stats", source).exit_code == 0
        terms = live().preprocessor.terms
        assert (terms.documents, terms.df("bees"), terms.df("robots")) == (documents, bees, robots), source
        assert terms.average_length("query") == model.average_length("query")


def test_a_build_that_is_not_published_is_there_and_not_live(
    build: Run, run: Run, output: Path, toy_corpus: Path, live: Live
) -> None:
    done = build(toy_corpus, "--no-publish")
    (version,) = IndexRoot(output).versions()
    assert names(output) == [version]
    assert f"built {version}; publish it" in done.stdout
    assert run("publish", "--index-root", output).exit_code == 0
    assert live().version == version


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CUDA, reason="this machine has no CUDA provider")
@pytest.mark.parametrize("kind", ["auto", "flat"])
def test_documents_encoded_on_the_gpu_are_served_by_the_cpu(
    build: Run, toy_corpus: Path, toy_index: Path, kind: str, live: Live
) -> None:
    done = build(toy_corpus, "--device", "cuda", "--index", kind)
    assert done.exit_code == 0, done.stderr
    query = "how do bees find the way home"
    assert search(live(), query) == search(opened(IndexRoot(toy_index)), query)


def test_the_default_model_is_the_one_that_models_default_names(
    run: Run, output: Path, toy_corpus: Path, toy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model, "MODELS_PACKAGE", "of_no_installation")
    done = run("build", "--input", toy_corpus.resolve(), "--index-root", output)
    assert (done.exit_code, "no default model" in done.stderr) == (3, True)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "DEFAULT").write_text("toy\n")
    (tmp_path / "models" / "toy").symlink_to(toy_model.resolve())
    assert run("build", "--input", toy_corpus.resolve(), "--index-root", output).exit_code == 0


def test_files_are_readable_by_others(toy_index: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    for path in toy_index.rglob("*"):
        assert path.stat().st_mode & 0o044 == 0o044 & ~umask, path
