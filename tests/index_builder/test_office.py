"""PDF and office files are documents; those without text, encrypted or damaged are rejects with their reason."""

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import pytest

from glow.errors import DependencyError
from glow_index_builder.input.lines import Line
from glow_index_builder.input.source import open_sources
from tests.files import office
from tests.index_builder.conftest import Run, report_of


def read(path: Path, most_bytes: int = 1_000_000) -> list[Line]:
    return [line for source in open_sources(str(path)) for line in source.lines(most_bytes)]


def documents_of(folder: Path, name: str, content: bytes) -> list[dict[str, Any]]:
    (folder / name).write_bytes(content)
    return [json.loads(line.data) for line in read(folder / name) if not line.fault]


@pytest.mark.parametrize("ending", office.MAKERS)
def test_a_file_has_title_headings_text_and_metadata(tmp_path: Path, ending: str) -> None:
    content = office.MAKERS[ending]("A guide to pumps", "Drain it", "Frost bürsts the housing.")
    (found,) = documents_of(tmp_path, name := f"a{ending}", content)
    assert (found["_id"], found["url"], found["title"]) == (name, name, "A guide to pumps")
    assert (found["author"], found["path"], found["modified"][:2]) == ("Ann", name, "20")
    assert "Frost bürsts the housing." in found["text"] and found["anchor"] == ["Drain it"]
    assert "Drain it" not in found["text"] and ("price | 1.5" in found["text"]) == (ending == ".xlsx")
    assert found["date"].startswith("2020-02-03") or ending in (".xlsx", ".pptx")


def test_each_page_of_a_pdf_is_a_document(tmp_path: Path) -> None:
    content = office.pdf(["Drain the pump.", "", "Oil the valve."], "Pumps")
    first, third = documents_of(tmp_path, "pump-manual.pdf", content)
    assert first["_id"] == first["url"] == "pump-manual.pdf#page=1"
    assert (third["_id"], third["page"], third["title"]) == ("pump-manual.pdf#page=3", 3, "Pumps")
    assert (third["text"], third["author"], third["date"]) == ("Oil the valve.", "Ann", "2020-02-03")
    assert documents_of(tmp_path, "pump-manual.pdf", office.pdf(["A"]))[0]["title"] == "pump manual"


def test_a_long_pdf_is_read_fast(tmp_path: Path) -> None:
    content = office.pdf([f"Page {number} tells about pumps." for number in range(2_000)])
    started = time.monotonic()
    assert len(documents_of(tmp_path, "a.pdf", content)) == 2_000
    assert 2_000 / (time.monotonic() - started) > 20


def test_a_long_file_is_several_documents(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(1_000)]
    lines = (" ".join(words[start : start + 10]) for start in range(0, 1_000, 10))
    (tmp_path / "a.txt").write_text("\n".join(lines))
    parts = read(tmp_path / "a.txt", 2_000)
    found = [json.loads(line.data) for line in parts]
    assert all(len(line.data) <= 2_000 and not line.is_too_long for line in parts)
    assert [each["_id"] for each in found] == [f"a.txt#part={number}" for number in range(1, len(found) + 1)]
    assert " ".join(each["text"] for each in found).split() == words and found[0]["text"].endswith("9")


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.pdf").write_bytes(office.pdf(["Text"]))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    told = r"a\.pdf needs the package pypdfium2: install the extra `documents`"
    with pytest.raises(DependencyError, match=told):
        open_sources(str(tmp_path / "a.pdf"))


def test_a_folder_of_files_is_built_changed_and_its_ids_deleted(
    build: Run, run: Run, toy_model: Path, output: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "pump.pdf").write_bytes(office.pdf(["Drain the pump.", "Oil the valve."]))
    (folder / "left.txt").write_text("Left out")
    (folder / "a.zip").touch()
    options = ("--exclude", "left.*", "--base-url", "https://wiki.example")
    done = build(folder, *options, "--json", tmp_path / "report.json")
    assert done.exit_code == 0, done.stderr
    assert "2 documents" in done.stdout and "skipped: 1 .zip" in done.stdout
    assert report_of(tmp_path / "report.json")["skipped"] == {".zip": 1}
    (folder / "new.md").write_text("# New\n\nBees dance.")
    done = run("upsert", "--input", folder, "--index-root", output, "--model", toy_model)
    assert done.exit_code == 0, done.stderr
    assert "1 new, 2 unchanged" in done.stdout and "skipped: 1 .zip" in done.stdout
    (tmp_path / "ids.txt").write_text("new.md\npump.pdf#page=2\n")
    done = run("delete", "--input", tmp_path / "ids.txt", "--index-root", output)
    assert done.exit_code == 0 and "2 deleted" in done.stdout, done.stderr
    done = run("search", "drain the pump", "--index-root", output)
    assert "https://wiki.example/pump.pdf#page=1" in done.stdout
