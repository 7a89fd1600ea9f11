"""Every form of input is built, good documents of bad input too, and what is rejected can be found."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import click.testing
import onnxruntime
import pytest

from glow.artifact import IndexRoot
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS

Run = Callable[..., click.testing.Result]
Spawn = Callable[..., subprocess.Popen[bytes]]
Live = Callable[[], Index]
LinesFile = Callable[[list[bytes | dict[str, object]]], Path]
HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def names(folder: Path) -> list[str]:
    """What lies in a folder, but for its lock."""
    return sorted({path.name for path in folder.iterdir()} - {".lock"}) if folder.exists() else []


def search(index: Index, query: str, k: int = 5) -> list[str]:
    rows = index[VECTORS].search(index.encoder.encode([index.preprocessor.query(query)]), k)[1][0]
    return [document.id for document in index[STORED_FIELDS].rows(rows.tolist())]


def test_a_plain_beir_folder_is_built(build: Run, tmp_path: Path, live: Live) -> None:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "bees"}\n')
    (folder / "corpus.jsonl").write_text(
        '{"_id": "1", "title": "", "text": "Bees find the way home.", "metadata": {}}\n'
        '{"_id": "2", "title": "Owls", "text": "Owls hunt at night."}\n'
    )
    assert build(folder).exit_code == 0
    assert search(live(), "owls at night", 1) == ["2"]


def test_several_files_are_one_corpus_and_an_id_counts_across_them(
    build: Run, output: Path, tmp_path: Path, live: Live
) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "b.jsonl").write_text('{"_id": "2", "title": "owls"}\n{"_id": "1", "title": "again"}\n')
    (folder / "a.jsonl").write_text('{"_id": "1", "title": "bees"}\n')
    assert build(folder, "--max-reject-ratio", 0.5).exit_code == 0
    index = live()
    assert [document.id for document in index[STORED_FIELDS].scan()] == ["1", "2"]
    (reject,) = (output / index.version / "rejects.jsonl").read_text().splitlines()
    assert json.loads(reject) | {"start": ""} == {
        "file": "b.jsonl",
        "line": 2,
        "id": "1",
        "reason": "duplicate '_id': '1' came before, the first one is kept",
        "start": "",
    }


def test_standard_input_is_built(build: Run, live: Live) -> None:
    assert build("-", stdin=b'{"_id": "1", "title": "bees"}\n{"_id": "2", "title": "owls"}\n').exit_code == 0
    assert live()[STORED_FIELDS].count == 2


def test_keys_are_mapped_to_fields(build: Run, lines_file: LinesFile, live: Live) -> None:
    file = lines_file([{"key": "1", "headline": "bees", "body": "home"}])
    options = ("--rename-field", "headline=title", "--rename-field", "body=text", "--rename-field", "key=_id")
    assert build(file, *options).exit_code == 0
    assert live()[STORED_FIELDS].get("1").fields == {"title": ("bees",), "text": ("home",)}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["headline"], "--rename-field takes FOUND=WANTED"),
        (["=title"], "--rename-field takes FOUND=WANTED"),
        (["headline=titel"], "the model reads _id, title, anchor, clicked_queries, url, text, not 'titel'"),
        (["a=title", "b=title"], "mapped twice"),
        (["a=title", "a=text"], "mapped twice"),
    ],
)
def test_a_map_that_cannot_be_meant_is_refused(
    build: Run, output: Path, toy_corpus: Path, pairs: list[str], message: str
) -> None:
    done = build(toy_corpus, *(part for pair in pairs for part in ("--rename-field", pair)))
    assert done.exit_code == 2
    assert message in done.stderr
    assert names(output) == []


@pytest.mark.parametrize("text", ["\u200b\u200d", "!?…", "東京", "\U0001f41d", "a" * 5000, "\0", "\ud800"])
def test_one_odd_document_is_enough_for_an_index(
    build: Run, lines_file: LinesFile, text: str, live: Live
) -> None:
    done = build(lines_file([{"_id": "odd", "text": text}]))
    assert done.exit_code == 0, done.stderr
    assert live()[STORED_FIELDS].count == 1


def test_rejects_lie_in_the_version_and_are_counted(
    build: Run, output: Path, lines_file: LinesFile, tmp_path: Path, live: Live
) -> None:
    good: list[bytes | dict[str, object]] = [{"_id": str(number), "title": "bees"} for number in range(9)]
    done = build(lines_file([*good, b"{broken", {"title": "no id"}]), "--json", tmp_path / "r.json")
    assert done.exit_code == 0
    index = live()
    rejects = output / index.version / "rejects.jsonl"
    assert [json.loads(line)["line"] for line in rejects.read_text().splitlines()] == [10, 11]
    assert "rejects.jsonl" in index.manifest.files
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["counts"] | {"read_bytes": 0} == {
        "documents": 9,
        "rejects": 2,
        "lines": 11,
        "read_bytes": 0,
    }
    assert report["rejects"] == {"not JSON": 1, "'_id' is missing": 1}
    assert f"2 lines rejected: 1 x not JSON, 1 x '_id' is missing; all are in {rejects}" in done.stdout


def test_too_many_rejects_fail_and_leave_the_live_version(
    build: Run, output: Path, lines_file: LinesFile, toy_corpus: Path, tmp_path: Path
) -> None:
    assert build(toy_corpus).exit_code == 0
    before = {name: (output / name).stat().st_mtime_ns for name in names(output)}
    done = build(lines_file([{"_id": "a", "title": "bees"}, b"{", b"["]), "--json", tmp_path / "r.json")
    assert done.exit_code == 4
    assert "2 of 3 input lines are invalid (limit: 20%, --max-reject-ratio)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("glow: ")
    (kept,) = output.glob("rejects-*.jsonl")
    assert str(kept) in done.stderr
    assert len(kept.read_text().splitlines()) == 2
    assert {name: (output / name).stat().st_mtime_ns for name in names(output) if name != kept.name} == before
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["status"], report["code"]) == ("failed", "build_failed")
    assert report["error"] in done.stderr.replace("glow: error (build_failed): ", "")


@pytest.mark.parametrize("content", [b"", b"\n \n", b"{}\n", b'{"_id": "a"}\n'])
def test_input_without_a_document_fails(build: Run, output: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty.jsonl").write_bytes(content)
    done = build(tmp_path / "empty.jsonl", "--max-reject-ratio", 1.0)
    assert done.exit_code == 4
    assert not IndexRoot(output).versions()
