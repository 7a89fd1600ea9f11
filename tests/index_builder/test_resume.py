"""A build that ended goes on where it ended, and ends in the same version as one that did not."""

import errno
import io
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.errors import BuildError, BusyError, InputError
from glow.index.columns import COLUMNS
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS, DenseIndex
from glow.runtime import Encoder
from glow_index_builder.building.work import Step, WorkFolder, open_work
from glow_index_builder.encoding.blocks import Block, BlockEncoder
from glow_index_builder.progress import Stages
from tests.artifact.conftest import flip
from tests.index_builder.conftest import Lines, LinesFile, Live, Run, Spawn, report_of
from tests.until import until


@pytest.fixture
def many(lines_file: LinesFile) -> Path:
    return lines_file(
        {"_id": f"d{n}", "title": f"bees {n}", "text": "They find home. " * (n % 40), "n": n}
        for n in range(300)
    )


@pytest.fixture
def end_early(build: Run, many: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Starts a build whose disk is full when the dense index is to be written."""

    def full(self: DenseIndex, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def end(*options: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(DenseIndex, "save", full)
            done = build(many, *options)
        assert done.exit_code == 4 and "No space left on device" in done.stderr

    return end


def files_of(output: Path) -> list[dict[str, Any]]:
    """The files of each version, oldest first, but for those that hold times."""
    root = IndexRoot(output)
    manifests = (root.manifest(version) for version in root.versions())
    return [
        {name: record for name, record in each.files.items() if name != "report.json"} for each in manifests
    ]


def test_a_killed_build_goes_on_and_ends_in_the_same_version(
    spawn: Spawn, build: Run, output: Path, toy_model: Path, many: Path, tmp_path: Path
) -> None:
    options = ("--encode-batch-documents", 4, "--index", "hnsw", "--threads", 1)
    process = spawn("build", "--model", toy_model, "--input", many, "--index-root", output, *options)
    until(lambda: len(list(output.glob(".work/*/shards/*.json"))) > 10)
    process.kill()
    process.communicate(timeout=60)
    done = {path.name: path.stat().st_mtime_ns for path in output.glob(".work/*/shards/*.json")}
    assert 10 < len(done) < 75, "it was killed too late to see anything"
    assert IndexRoot(output).versions() == []

    seen: dict[str, int] = {}
    encode_one = BlockEncoder.encode
    encoded: list[int] = []

    def encode(self: BlockEncoder, block: Block) -> Block:
        encoded.append(block.start)
        seen.update({path.name: path.stat().st_mtime_ns for path in output.glob(".work/*/shards/*.json")})
        return encode_one(self, block)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockEncoder, "encode", encode)
        assert build(many, *options, "--json", tmp_path / "r.json").exit_code == 0
    assert len(encoded) == 75 - len(done)
    assert done.items() <= seen.items()
    assert report_of(tmp_path / "r.json")["shards"]["resumed"] == len(done)
    assert not (output / ".work").exists()
    assert build(many, *options).exit_code == 0
    resumed, straight = files_of(output)
    assert resumed == straight


def test_a_damaged_shard_and_a_damaged_step_are_done_again(
    build: Run, output: Path, many: Path, tmp_path: Path, end_early: Callable[..., None]
) -> None:
    options = ("--encode-batch-documents", 75)
    end_early(*options)
    (work,) = output.glob(".work/*")
    for name in ("shards/0000000075-0000000150.f32", "terms/terms/dfs.npy"):
        flip(work / name, -1)
    done = build(many, *options, "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.stderr
    assert report_of(tmp_path / "r.json")["shards"]["resumed"] == 3
    assert "terms: done before" not in done.stderr
    assert build(many, *options).exit_code == 0
    resumed, straight = files_of(output)
    assert resumed == straight


def test_an_interrupted_build_says_that_it_can_go_on_and_does_not_where_it_shall_not(
    build: Run, output: Path, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = BlockEncoder.encode

    def interrupted(self: BlockEncoder, block: Block) -> Block:
        if block.start == 200:
            raise KeyboardInterrupt
        return encode(self, block)

    monkeypatch.setattr(BlockEncoder, "encode", interrupted)
    done = build(many, "--encode-batch-documents", 100)
    assert done.exit_code == 130
    told, last = done.stderr.splitlines()[-2:]
    assert told == "finished steps are kept; run the same command again to resume"
    assert last.startswith("glow: interrupted")
    assert [path.name for path in output.iterdir()] == [".work"]
    monkeypatch.undo()
    options = ("--encode-batch-documents", 100, "--no-resume", "--json", tmp_path / "r.json")
    assert build(many, *options).exit_code == 0
    assert report_of(tmp_path / "r.json")["shards"]["resumed"] == 0


def test_other_input_or_options_are_another_build(
    build: Run, output: Path, many: Path, tmp_path: Path, end_early: Callable[..., None]
) -> None:
    end_early()
    (kept,) = output.glob(".work/*")
    os.utime(many, ns=(1, 1))
    assert "read: done before" not in build(many).stderr
    assert list(output.glob(".work/*")) == [kept]
    assert build(many, "--threads", 2, "--no-lexical", "--json", tmp_path / "r.json").exit_code == 0
    assert report_of(tmp_path / "r.json")["shards"]["resumed"] == 0


@pytest.mark.parametrize("passages", [(), ("--passages",)])
def test_a_document_that_cannot_be_encoded_is_a_reject_and_the_rest_is_built(
    build: Run,
    output: Path,
    lines_file: LinesFile,
    live: Live,
    monkeypatch: pytest.MonkeyPatch,
    passages: Any,
) -> None:
    """A tower that overflows at one word stands for whatever a model may fail at."""
    run_outputs = Encoder.run_outputs

    def overflowing(self: Encoder, sequences: Any, outputs: Any) -> Any:
        vectors, *rest = run_outputs(self, sequences, outputs)
        for row, sequence in enumerate(sequences):
            if len(sequence) > 60:
                vectors[row] = np.nan
        return [vectors, *rest]

    documents: Lines = [{"_id": f"d{n}", "title": "bees", "text": f"Home {n}. ", "n": n} for n in range(60)]
    documents[41] = {"_id": "long", "title": "owls and whales " * 9, "text": "hunt at night. " * 30, "n": 41}
    monkeypatch.setattr(Encoder, "run_outputs", overflowing)
    done = build(lines_file(documents), "--encode-batch-documents", 16, *passages)
    monkeypatch.undo()
    assert done.exit_code == 0, done.stderr
    index = live()
    ids = [document.id for document in index[STORED_FIELDS].scan()]
    assert ids == [f"d{number}" for number in range(60) if number != 41]
    assert len(index[VECTORS]) == 59
    assert index[COLUMNS].columns is not None and index.holds(POSTINGS) and len(index[POSTINGS]) == 59
    assert (index.manifest.counts["documents"], index.manifest.counts["rejects"]) == (59, 1)
    assert np.isfinite(index[VECTORS].vectors(np.array([41]))).all()
    (reject,) = (output / index.version / "rejects.jsonl").read_text().splitlines()
    reason = "cannot be encoded: the vector of document 'long' is not finite"
    found = {"file": None, "line": None, "id": "long", "reason": reason}
    assert json.loads(reject) == {**found, "start": json.loads(reject)["start"]}
    assert "1 line rejected: 1 x cannot be encoded" in done.stdout


def working(root: Path, key: str | None = "key") -> AbstractContextManager[WorkFolder]:
    return open_work(root, key, Stages(io.StringIO()), resume=True)


def read_step(work: WorkFolder) -> Step:
    with work.step("read") as step:
        if not step.is_done:
            (step.folder / "sub").mkdir()
            (step.folder / "sub" / "file").write_text("done")
            step.values = {"count": 3}
    return step


@pytest.mark.parametrize("damage", ["changed", "gone", "more", "unmarked"])
def test_a_step_that_is_not_as_it_was_is_done_again(tmp_path: Path, damage: str) -> None:
    with working(tmp_path) as work:
        file = read_step(work).folder / "sub" / "file"
        match damage:
            case "changed":
                file.write_text("none")
            case "gone":
                file.unlink()
            case "more":
                file.with_name("other").write_text("")
            case "unmarked":
                (work.path / "read" / "step.json").write_text("{")
        assert not read_step(work).is_done
        assert read_step(work).is_done


def build_error(cause: BaseException) -> BuildError:
    error = BuildError("cannot write")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (KeyboardInterrupt(), True),
        (OSError(28, "No space left on device"), True),
        (sqlite3.OperationalError("database or disk is full"), True),
        (BusyError("later"), True),
        (build_error(OSError(28, "No space left on device")), True),
        (InputError("never"), False),
        (BuildError("too many rejects"), False),
    ],
)
def test_work_is_kept_where_the_same_command_may_go_on(
    tmp_path: Path, error: BaseException, is_kept: bool
) -> None:
    with pytest.raises((type(error), BuildError)), working(tmp_path) as work:
        read_step(work)
        raise error
    assert (tmp_path / ".work").exists() is is_kept


def test_the_same_build_runs_once_at_a_time_and_others_beside_it(tmp_path: Path) -> None:
    with working(tmp_path) as work:
        read_step(work)
        already = r"this build runs already: .*key is being changed by process"
        with pytest.raises(BusyError, match=already), working(tmp_path):
            pass
        with working(tmp_path, "other"), working(tmp_path, None):
            pass
        assert read_step(work).is_done


def test_what_a_killed_build_of_a_pipe_left_is_cleared(tmp_path: Path) -> None:
    left = tmp_path / ".work" / "once-012345"
    left.mkdir(parents=True)
    with working(tmp_path):
        assert not left.exists()


def test_ends_without_a_word_are_counted(tmp_path: Path) -> None:
    with working(tmp_path) as work:
        read_step(work)
        (work.path / ".encode-kills").write_bytes(b"xx")
        with pytest.raises(ValueError, match="mine"), work.counting_kills("encode") as kills:
            assert (kills, (work.path / ".encode-kills").read_bytes()) == (2, b"xxx")
            raise ValueError("mine")
        with work.counting_kills("encode") as kills:
            assert kills == 2
        with work.counting_kills("encode") as kills:
            assert kills == 0
