"""A build that cannot be finished says why in one line and changes nothing."""

import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import DenseIndex
from tests.index_builder.conftest import HAS_CUDA, STAGES, LinesFile, Live, Run, Spawn, limited_disk, names
from tests.until import until


def test_a_kind_that_needs_more_documents_is_refused_before_encoding(
    build: Run, output: Path, lines_file: LinesFile
) -> None:
    done = build(lines_file([{"_id": str(n), "text": "bees"} for n in range(15)]), "--index", "ivf-pq")
    assert done.exit_code == 2 and "encode" not in done.stderr
    assert "an ivf-pq index needs at least 16 vectors to train, found 15" in done.stderr
    assert names(output) == []


@pytest.mark.skipif(HAS_CUDA, reason="this machine has the CUDA provider")
def test_a_device_that_is_not_there_is_refused_before_any_work(
    build: Run, output: Path, toy_corpus: Path
) -> None:
    for kind in ("auto", "flat", "hnsw"):
        done = build(toy_corpus, "--device", "cuda", "--index", kind)
        assert done.exit_code == 5 and "cuda" in done.stderr and len(done.stderr.splitlines()) == 1
        assert names(output) == []


def test_a_damaged_or_missing_model_is_refused(
    run: Run, output: Path, toy_corpus: Path, toy_model: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(toy_model, tmp_path / "model"))
    with (model / "document.onnx").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff\xff")
    for folder, found in ((model, "model/document.onnx is damaged"), (tmp_path / "none", "no model at")):
        done = run("build", "--model", folder, "--input", toy_corpus, "--index-root", output)
        assert done.exit_code == 3 and found in done.stderr
        assert names(output) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_but_a_message(
    spawn: Spawn, output: Path, toy_model: Path, number: signal.Signals
) -> None:
    process = spawn("build", "--model", toy_model, "--input", "-", "--index-root", output)
    process.stdin.write(b'{"_id": "1", "title": "bees"}\n')
    process.stdin.flush()
    until(lambda: any(output.glob(".work/*/.read/*")))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert IndexRoot(output).versions() == [] and IndexRoot(output).live() is None
    if number is not signal.SIGKILL:
        assert process.returncode == 128 + number
        assert errors.decode().splitlines() == ["glow: interrupted; nothing unfinished was left behind"]
        assert names(output) == []


@pytest.mark.parametrize(
    ("size_bytes", "stages"),
    [
        (1 << 10, 0),  # the document store
        (300 * 32 * 4 - 1, 2),  # the vectors
        (300 * 32 * 4, 6),  # FAISS's file, a little larger
        (54 << 10, 8),  # the model's copy
    ],
)
def test_a_full_disk_fails_clearly_in_any_stage_and_the_same_command_goes_on(
    build: Run,
    output: Path,
    live: Live,
    toy_corpus: Path,
    lines_file: LinesFile,
    size_bytes: int,
    stages: int,
) -> None:
    assert build(toy_corpus).exit_code == 0
    before = names(output)
    file = lines_file([{"_id": str(number), "title": "bees"} for number in range(300)])
    with limited_disk(size_bytes):
        done = build(file, "--encode-batch-documents", 300)
    assert done.exit_code == 4, done.stderr
    *told, last = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in told] == STAGES[:stages]
    assert last.startswith("glow: ") and "cannot write" in last
    assert ("run the same command again to resume" in last) is (stages > 0)
    assert names(output) == ([".work"] if stages else []) + before
    assert live()[STORED_FIELDS].count == 50
    done = build(file, "--encode-batch-documents", 300)
    assert done.exit_code == 0, done.stderr
    *told, _ = done.stderr.splitlines()
    skipped = [line.partition(":")[0] for line in told if line.endswith("done before")]
    assert skipped == [stage for stage in STAGES[:stages] if stage != "encode"]
    assert live()[STORED_FIELDS].count == 300
    assert ".work" not in names(output)


def test_an_output_that_cannot_be_a_folder_fails_clearly(
    run: Run, toy_model: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    place = tmp_path / "file" / "index"
    done = run("build", "--model", toy_model, "--input", toy_corpus, "--index-root", place)
    assert done.exit_code == 4 and "cannot write below" in done.stderr


def test_a_finished_version_that_cannot_be_opened_is_removed(
    build: Run, output: Path, toy_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is built is opened before it is published: here the dense index is written one vector short."""
    save = DenseIndex.save

    def save_short(self: DenseIndex, path: Path) -> None:
        self._index.remove_ids(np.array([49]))
        save(self, path)

    monkeypatch.setattr(DenseIndex, "save", save_short)
    done = build(toy_corpus)
    assert done.exit_code == 4 and "49 vectors, 50 stored documents" in done.stderr
    assert names(output) == []


@pytest.mark.parametrize(
    "option",
    "index=lsh threads=0 workers=0 encode-batch-documents=0 runner=spark max-reject-ratio=1.5 max-line-bytes=0".split(),
)
def test_wrong_options_exit_with_two(run: Run, option: str) -> None:
    assert run("build", "--input", "x.jsonl", "--index-root", "o", f"--{option}").exit_code == 2


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
