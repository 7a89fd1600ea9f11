"""Builds as people run them: options, progress, explanations, and what goes wrong."""

import io
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import glow.commands as progress
from glow.artifact import IndexRoot, read_manifest
from glow.artifact.model import EXPLAIN_FILES
from glow.errors import MismatchError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS, DocumentStore, DocumentWriter
from glow.index.vectors import VECTORS, build_dense
from glow.records import Document
from glow_index_builder.building.report import measure_recall
from glow_index_builder.progress import Stages
from tests.index_builder.conftest import STAGES, Live, Run
from tests.made_index import opened


@pytest.fixture
def two_versions(build: Run, output: Path, toy_corpus: Path) -> IndexRoot:
    for _ in range(2):
        assert build(toy_corpus, "--no-publish").exit_code == 0
    return IndexRoot(output)


def test_publish_takes_the_newest_or_the_named_version(run: Run, two_versions: IndexRoot) -> None:
    old, new = two_versions.versions()
    assert run("publish", "--index-root", two_versions.path).stdout == f"published {new}\n"
    assert two_versions.current() == new
    assert run("publish", "--index-root", two_versions.path, old).stdout == f"published {old}\n"
    assert two_versions.current() == old


def test_a_damaged_version_is_neither_sound_nor_published(run: Run, two_versions: IndexRoot) -> None:
    old, new = two_versions.versions()
    run("publish", "--index-root", two_versions.path, old)
    (two_versions.folder(new) / "terms" / "dfs.npy").write_bytes(b"")
    for command in ("publish", "verify"):
        done = run(command, "--index-root", two_versions.path, new)
        assert done.exit_code == 3 and "terms/dfs.npy has 0 bytes" in done.stderr
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
    report = json.loads((tmp_path / "v.json").read_text())
    assert (report["status"], report["version"], report["counts"]["documents"]) == ("sound", old, 50)


def test_an_empty_root_has_nothing_to_publish(run: Run, output: Path) -> None:
    done = run("publish", "--index-root", output)
    assert (done.exit_code, "no version in" in done.stderr) == (3, True)


@pytest.mark.parametrize(
    "options",
    [
        "--index lsh",
        "--threads 0",
        "--workers 0",
        "--encode-batch-documents 0",
        "--runner spark",
        "--max-reject-ratio 1.5",
        "--max-line-bytes 0",
    ],
)
def test_wrong_options_exit_with_two(run: Run, options: str) -> None:
    assert run("build", "--input", "x.jsonl", "--index-root", "o", *options.split()).exit_code == 2


@pytest.mark.parametrize("command", ["build", "build --input x.jsonl", "rebuild"])
def test_incomplete_and_unknown_commands_exit_with_two(run: Run, command: str) -> None:
    assert run(*command.split()).exit_code == 2


def test_input_that_is_not_there_exits_with_two_and_one_line(
    build: Run, output: Path, tmp_path: Path
) -> None:
    done = build(tmp_path / "missing.jsonl")
    assert done.exit_code == 2 and done.stderr.startswith("glow: error (invalid_input): no input at")
    assert len(done.stderr.splitlines()) == 1 and not output.exists()


def test_a_report_that_could_not_be_written_is_refused_before_the_work(
    build: Run, output: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    done = build(toy_corpus, "--json", tmp_path / "nowhere" / "r.json")
    assert (done.exit_code, "there is no folder" in done.stderr) == (2, True)
    assert not output.exists()


def test_stages_are_plain_lines_where_no_terminal_is(build: Run, toy_corpus: Path) -> None:
    lines = build(toy_corpus).stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == STAGES
    assert lines[2].startswith("encode: 50 documents in ")


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
    """Each is missing in turn, or differs from what the index says of its model."""
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


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_stage_keeps_its_time() -> None:
    stages = Stages(io.StringIO())
    with stages.stage("read"):
        time.sleep(0.02)
    with stages.stage("encode"):
        pass
    assert list(stages.seconds) == ["read", "encode"]
    assert 0.02 <= stages.seconds["read"] < 2


def test_plain_lines_tell_what_was_done() -> None:
    out = io.StringIO()
    with Stages(out).stage("encode", 3000, "documents") as advance:
        advance(1000)
        advance(2000)
    assert out.getvalue().startswith("encode: 3,000 documents in 0.")
    assert out.getvalue().count("\n") == 1


def test_long_stages_speak_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.0)
    out = io.StringIO()
    with Stages(out).stage("read", None, "bytes") as advance:
        advance(500)
    assert out.getvalue().splitlines()[0] == "read: 500 of ? bytes"


def test_a_terminal_sees_a_bar_up_to_the_end() -> None:
    out = Terminal()
    with Stages(out).stage("encode", 10, "documents") as advance:
        advance(10)
    assert "encode" in out.getvalue() and "100%" in out.getvalue()
    with Stages(out).stage("index"):
        pass
    assert "index" in out.getvalue()


def test_a_stage_that_fails_passes_its_error_on() -> None:
    for out in (io.StringIO(), Terminal()):
        with pytest.raises(ValueError, match="mine"), Stages(out).stage("read"):
            raise ValueError("mine")


@pytest.fixture(scope="module")
def index(toy_index: Path) -> Index:
    return opened(IndexRoot(toy_index))


@pytest.fixture(scope="module")
def vectors(index: Index) -> NDArray[np.float32]:
    """The index's vectors, read back from FAISS."""
    stored: NDArray[np.float32] = index[VECTORS]._index.reconstruct_n(0, len(index[VECTORS]))  # type: ignore[attr-defined]  # the part itself, behind its view
    return stored


def measured(dense: Any, vectors: NDArray[np.float32], index: Index, store: Any = None) -> Any:
    return measure_recall(dense, vectors, store or index[STORED_FIELDS], index.preprocessor, index.encoder)


def test_an_exact_index_has_recall_one(index: Index, vectors: NDArray[np.float32]) -> None:
    found = measured(index[VECTORS], vectors, index)
    assert (found.recall, found.depth, found.queries) == (1.0, 10, 50)


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
