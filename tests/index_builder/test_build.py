"""A build makes a version that opens, answers, explains, and says how it was made and what it does; `publish` and `verify`."""

import hashlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import glow.commands as progress
from glow.artifact import IndexRoot, model, read_manifest
from glow.artifact.model import EXPLAIN_FILES, query_side_files
from glow.errors import MismatchError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS, DocumentStore, DocumentWriter
from glow.index.vectors import VECTORS, build_dense
from glow.records import Document
from glow.runtime import Model
from glow.text import TermTable
from glow_index_builder.building.report import measure_recall
from glow_index_builder.encoding.text_encoder import CPU_BATCH_TOKENS
from glow_index_builder.progress import Stages, peak_memory_bytes
from tests.index_builder.conftest import HAS_CUDA, STAGES, LinesFile, Live, Run, names, report_of, search
from tests.made_index import opened


def test_a_published_build_answers(build: Run, output: Path, toy_corpus: Path, live: Live) -> None:
    done = build(toy_corpus)
    assert done.exit_code == 0, done.stderr
    index = live()
    assert search(index, "how do bees find the way home")[0] == "toy/0"
    assert names(output) == sorted(["CURRENT", index.version])
    files = (
        "columns documents.sqlite impacts manifest.json model report.json spelling stems terms vectors.faiss"
    )
    assert names(output / index.version) == files.split()
    assert f"published {index.version}" in done.stdout


def test_vectors_are_those_of_the_model_under_the_index_s_own_term_table(
    build: Run, toy_model: Path, toy_corpus: Path, lines_file: LinesFile, live: Live
) -> None:
    lines = toy_corpus.read_bytes().splitlines()[:12]
    assert build(lines_file([*lines])).exit_code == 0
    index, model = live(), Model.open(toy_model)
    documents = list(index[STORED_FIELDS].scan())
    assert [document.id for document in documents] == [f"toy/{number}" for number in range(12)]
    stored = index[VECTORS].vectors(np.arange(12))
    # The same batches give the same bits; the toy's towers hardly feel weights, so nothing less would tell.
    encoder = model.encoder("document", batch_tokens=CPU_BATCH_TOKENS)
    own = model.with_terms(index.preprocessor.terms)
    for preprocessor, belongs in ((own, True), (model.preprocessor, False)):
        expected = encoder.encode([preprocessor.document(document) for document in documents])
        np.testing.assert_allclose(stored, expected, atol=1e-4)
        assert np.array_equal(stored, expected) is belongs


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
    counts = {"documents": 50, "reused": 0, "rejects": 0, "lines": 50}
    assert report["counts"] == {**counts, "read_bytes": toy_corpus.stat().st_size}
    assert (report["rejects"], report["truncated"]["url"]) == ({}, 50)
    assert (report["terms"]["source"], report["terms"]["documents"]) == ("corpus", 50)
    assert report["index"]["kind"] == "flat"
    assert "50 documents are few enough" in report["index"]["why"]
    assert report["index"]["size_bytes"] == (output / report["version"] / "vectors.faiss").stat().st_size
    assert report["recall"] == {"recall": 1.0, "depth": 10, "queries": 50, "seed": 0}
    assert list(report["seconds"]) == [*STAGES, "total"]
    assert report["documents_per_second"]["total"] > 0
    peaks = report["stage_peak_memory_bytes"]
    assert set(peaks) == {*report["seconds"], "worker"} - {"check", "total"}
    assert max(peaks.values()) == report["peak_memory_bytes"] > 10_000_000
    assert 0 < report["shards"].pop("seconds") <= report["seconds"]["total"]
    shards = {"documents": 256, "count": 1, "resumed": 0, "failures": 0}
    assert report["shards"] == {**shards, "runner": "local", "workers": 1}
    told, rows = report["lexical"], np.load(output / report["version"] / "impacts" / "rows.npy")
    assert (told["kind"], told["postings"]) == ("bm25", len(rows))
    assert told["bytes_per_posting"] == pytest.approx(told["size_bytes"] / told["postings"], abs=0.01)


def test_peak_memory_is_in_bytes_on_a_system_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glow_index_builder.progress.Path", lambda name: Path("no" + name))
    assert 10_000_000 < peak_memory_bytes() < 1 << 40


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
    file = lines_file([{"_id": str(number), "title": f"bees {number}"} for number in range(3300)])
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


@pytest.fixture
def two_versions(build: Run, output: Path, toy_corpus: Path) -> IndexRoot:
    for _ in range(2):
        done = build(toy_corpus, "--no-publish")
        assert done.exit_code == 0 and "; publish it" in done.stdout
    return IndexRoot(output)


def test_publish_takes_the_newest_or_the_named_version(run: Run, two_versions: IndexRoot) -> None:
    old, new = two_versions.versions()
    assert run("publish", "--index-root", two_versions.path).stdout == f"published {new}\n"
    assert two_versions.current() == new
    assert run("publish", "--index-root", two_versions.path, old).stdout == f"published {old}\n"
    assert two_versions.current() == old


def test_verify_checks_the_live_version_or_the_named_one(
    run: Run, two_versions: IndexRoot, tmp_path: Path
) -> None:
    old, new = two_versions.versions()
    done = run("verify", "--index-root", two_versions.path)
    assert (done.exit_code, "no published index" in done.stderr) == (3, True)
    assert f"{new} is sound" in run("verify", "--index-root", two_versions.path, new).stdout
    run("publish", "--index-root", two_versions.path, old)
    done = run("verify", "--index-root", two_versions.path, "--json", tmp_path / "v.json")
    assert done.stdout.startswith(f"{old} is sound: 50 documents, flat, toy-model@sha256:")
    report = report_of(tmp_path / "v.json")
    assert (report["status"], report["version"], report["counts"]["documents"]) == ("sound", old, 50)


def test_a_version_explains_and_says_what_that_takes(
    build: Run, toy_corpus: Path, live: Live, output: Path, toy_model: Path
) -> None:
    report = output.parent / "report.json"
    done = build(toy_corpus, "--no-lexical", "--json", report)
    assert done.exit_code == 0, done.stderr
    size_bytes = sum((toy_model / name).stat().st_size for name in EXPLAIN_FILES)
    assert json.loads(report.read_bytes())["explain"] == {"size_bytes": size_bytes}
    index = live()
    assert index.explainer is not None
    found = index.explainer.explain_document(index[STORED_FIELDS].get("toy/0"))
    (score,), (row,) = (part[0] for part in index[VECTORS].search(found.vector[None], 1))
    assert (row, round(float(score), 5)) == (0, 1.0)


def test_explaining_can_be_left_out(build: Run, toy_corpus: Path, live: Live) -> None:
    assert build(toy_corpus, "--no-explain", "--no-lexical").exit_code == 0
    index = live()
    assert index.explainer is None
    assert not [name for name in index.manifest.files if "explain" in name or "document.bin" in name]


def test_a_model_without_explain_graphs_still_builds(
    run: Run, toy_model: Path, toy_corpus: Path, output: Path, live: Live, tmp_path: Path
) -> None:
    older = shutil.copytree(toy_model, tmp_path / "toy-model")
    manifest = read_manifest(older, "model")
    files = {name: record for name, record in manifest.files.items() if "explain" not in name}
    (older / "manifest.json").write_bytes(manifest.model_copy(update={"files": files}).to_bytes())
    done = run("build", "--input", toy_corpus, "--model", older, "--index-root", output, "--threads", 1)
    assert done.exit_code == 0, done.stderr
    assert live().explainer is None


def test_graphs_of_another_model_are_refused(build: Run, toy_corpus: Path, live: Live, output: Path) -> None:
    assert build(toy_corpus, "--no-lexical").exit_code == 0
    index = live()
    folder = output / index.version
    path = folder / "manifest.json"
    for name in EXPLAIN_FILES:
        parent = json.loads(json.dumps(index.manifest.parents))
        parent["model"]["files"][name] = "0" * 64
        path.write_bytes(index.manifest.model_copy(update={"parents": parent}).to_bytes())
        with pytest.raises(MismatchError, match=f"model/{name} is not the file of the model"):
            Index.open(folder)
    files = {name: record for name, record in index.manifest.files.items() if name != "model/document.bin"}
    path.write_bytes(index.manifest.model_copy(update={"files": files}).to_bytes())
    with pytest.raises(MismatchError, match=r"model/document\.bin"):
        Index.open(folder)


def test_stages_are_plain_lines_where_no_terminal_is(build: Run, toy_corpus: Path) -> None:
    lines = build(toy_corpus).stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == STAGES
    assert re.fullmatch(r"encode: 50 documents at [\d,]+/s in [\d.]+ s", lines[2])


def test_long_stages_speak_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.0)
    out = io.StringIO()
    with Stages(out).stage("read", None, "bytes") as advance:
        advance(500)
    with Stages(out).stage("encode", 1_000, "documents") as advance:
        advance(500)
    read, _, encode, _ = out.getvalue().splitlines()
    assert re.fullmatch(r"read: 500 of \? bytes, [\d,]+/s", read)
    assert re.fullmatch(r"encode: 500 of 1,000 documents, [\d,]+/s, [\d,]+ s left", encode)


def test_a_terminal_sees_a_bar_up_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    with Stages(out).stage("encode", 10, "documents") as advance:
        advance(10)
    assert "encode" in out.getvalue() and "100%" in out.getvalue()
    with Stages(out).stage("index"):
        pass
    assert "index" in out.getvalue()


@pytest.fixture(scope="module")
def index(toy_index: Path) -> Index:
    return opened(IndexRoot(toy_index))


@pytest.fixture(scope="module")
def vectors(index: Index) -> NDArray[np.float32]:
    return index[VECTORS].vectors(np.arange(len(index[VECTORS])))


def measured(dense: Any, vectors: NDArray[np.float32], index: Index, store: Any = None) -> Any:
    return measure_recall(dense, vectors, store or index[STORED_FIELDS], index.preprocessor, index.encoder)


def test_an_index_of_other_vectors_has_low_recall_and_the_same_every_time(
    index: Index, vectors: NDArray[np.float32]
) -> None:
    wrong = build_dense(np.ascontiguousarray(vectors[::-1]), "flat")
    found = {measured(wrong, vectors, index) for _ in range(3)}
    assert len(found) == 1 and found.pop().recall < 0.5


def test_documents_of_the_same_text_count_as_each_other(index: Index, tmp_path: Path) -> None:
    """Thirty equal vectors: any ten of them are the right ten."""
    with DocumentWriter(tmp_path / "store") as writer:
        for number in range(30):
            writer.add(Document(str(number), {"title": ("bees",)}))
    vectors = np.repeat(index.encoder.encode([index.preprocessor.query("bees")]), 30, axis=0)
    last_first = build_dense(np.ascontiguousarray(vectors[::-1]), "hnsw")
    assert measured(last_first, vectors, index, DocumentStore(tmp_path / "store")).recall == 1.0


def test_documents_without_title_are_asked_for_by_their_text(index: Index, tmp_path: Path) -> None:
    with DocumentWriter(tmp_path / "store") as writer:
        writer.add(Document("a", {"url": ("https://example.org/bees",)}))
        writer.add(Document("b", {"title": (" ",), "text": ("owls hunt at night",)}))
    vectors = index.encoder.encode([index.preprocessor.query(text) for text in ("bees", "owls")])
    found = measured(build_dense(vectors, "flat"), vectors, index, DocumentStore(tmp_path / "store"))
    assert (found.recall, found.depth, found.queries) == (1.0, 2, 2)
