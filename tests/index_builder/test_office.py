"""PDF and office files are documents; those without text, encrypted or damaged are rejects with their reason."""

import importlib.util
import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from glow.errors import DependencyError
from glow_index_builder.input.lines import Line
from glow_index_builder.input.source import open_sources
from tests.index_builder.conftest import Live, Run, report_of
from tests.index_builder.office_files import write_file, write_pdf

PADLOCK = "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{0}> /U <{0}> >> /ID [<00> <00>]".format(
    "ab" * 32
)
FORMATS = (".docx", ".epub", ".odt", ".xlsx", ".pptx", ".eml")


def lines_of(path: Path, most: int = 1_000_000) -> list[Line]:
    return [line for source in open_sources(str(path)) for line in source.lines(most)]


def documents_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line.data) for line in lines_of(path) if not line.fault]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_has_title_headings_text_and_metadata(tmp_path: Path, ending: str) -> None:
    path = write_file(tmp_path / f"a{ending}", "A guide to pumps", "Drain it", "Frost bürsts the housing.")
    (found,) = documents_of(path)
    assert (found["_id"], found["url"], found["title"]) == (path.name, path.name, "A guide to pumps")
    assert (found["author"], found["path"], found["modified"][:2]) == ("Ann", path.name, "20")
    assert "Frost bürsts the housing." in found["text"] and found["anchor"] == ["Drain it"]
    assert "Drain it" not in found["text"] and ("price | 1.5" in found["text"]) == (ending == ".xlsx")
    assert found["date"].startswith("2020-02-03") or ending in (".xlsx", ".pptx")


def test_each_page_of_a_pdf_is_a_document(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "pump-manual.pdf", ["Drain the pump.", "", "Oil the valve."], "Pumps")
    first, third = documents_of(path)
    assert first["_id"] == first["url"] == "pump-manual.pdf#page=1"
    assert (third["_id"], third["page"], third["title"]) == ("pump-manual.pdf#page=3", 3, "Pumps")
    assert (third["text"], third["author"], third["date"]) == ("Oil the valve.", "Ann", "2020-02-03")
    write_pdf(path, ["Drain the pump."])
    assert documents_of(path)[0]["title"] == "pump manual"


def test_a_long_pdf_is_read_fast(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [f"Page {number} tells about pumps." for number in range(2_000)])
    started = time.monotonic()
    assert len(documents_of(path)) == 2_000
    assert 2_000 / (time.monotonic() - started) > 20


def test_what_cannot_be_read_is_a_reject_with_its_reason(tmp_path: Path) -> None:
    path = write_file(tmp_path / "whole.docx", "Pumps", "Drain", "Text " * 500)
    (tmp_path / "cut.docx").write_bytes(path.read_bytes()[:900])
    (tmp_path / "old.docx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    (tmp_path / "random.eml").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "empty.pdf").touch()
    (tmp_path / "cut.pdf").write_bytes(b"%PDF-1.4\n1 0 obj")
    write_pdf(tmp_path / "scanned.pdf", ["", ""])
    write_pdf(tmp_path / "locked.pdf", ["Secret"], more=PADLOCK)
    with zipfile.ZipFile(tmp_path / "bomb.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("xl/bomb.xml", "w", force_zip64=True) as member:
            for _ in range(600):
                member.write(bytes(1 << 20))
    laughs = "".join(f"<!ENTITY a{each + 1} '{f'&a{each};' * 10}'>" for each in range(9))
    with zipfile.ZipFile(tmp_path / "laughs.odt", "w") as archive:
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
        archive.writestr("content.xml", f"<!DOCTYPE x [<!ENTITY a0 'ha'>{laughs}]><x>&a9;</x>")
    reasons = {json.loads(line.data)["_id"]: line.fault for line in lines_of(tmp_path)}
    expected = {
        "whole.docx": "",
        "cut.docx": "damaged or not .docx: File is not a zip file",
        "old.docx": "encrypted or of an old version",
        "random.eml": "not text",
        "empty.txt": "no text: the file is empty",
        "empty.pdf": "no text: the file is empty",
        "cut.pdf": "damaged or not a PDF",
        "scanned.pdf": "no text: scanned pages need OCR, for example ocrmypdf",
        "locked.pdf": "encrypted; remove its password",
        "bomb.xlsx": "unpacks to more than 536,870,912 bytes",
        "laughs.odt": "declares entities in content.xml",
    }
    assert reasons.keys() == expected.keys()
    assert not {name: reasons[name] for name in reasons if not reasons[name].startswith(expected[name])}


def test_a_long_file_is_several_documents(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(1_000)]
    (tmp_path / "a.txt").write_text(
        "\n".join(" ".join(words[start : start + 10]) for start in range(0, 1_000, 10))
    )
    lines = lines_of(tmp_path / "a.txt", 2_000)
    found = [json.loads(line.data) for line in lines]
    assert all(len(line.data) <= 2_000 and not line.is_too_long for line in lines)
    assert [each["_id"] for each in found] == [f"a.txt#part={number}" for number in range(1, len(found) + 1)]
    assert " ".join(each["text"] for each in found).split() == words and found[0]["text"].endswith("9")


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["Text"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        DependencyError, match=r"a\.pdf needs the package pypdfium2: install the extra `documents`"
    ):
        open_sources(str(path))


def test_a_folder_of_files_is_built_changed_and_its_ids_deleted(build: Run, run: Run, live: Live, toy_model: Path, output: Path, tmp_path: Path) -> None:  # fmt: skip
    folder = tmp_path / "files"
    folder.mkdir()
    write_pdf(folder / "pump.pdf", ["Drain the pump.", "Oil the valve."])
    (folder / "left.txt").write_text("Left out")
    (folder / "a.zip").touch()
    for ending in FORMATS:
        write_file(folder / f"a{ending}", "Pumps", "Frost", "The housing bursts.")
    done = build(
        folder,
        "--exclude",
        "left.*",
        "--base-url",
        "https://wiki.example",
        "--json",
        tmp_path / "report.json",
    )
    assert done.exit_code == 0, done.stderr
    assert "8 documents" in done.stdout and "skipped: 1 .zip" in done.stdout
    assert report_of(tmp_path / "report.json")["skipped"] == {".zip": 1}
    (folder / "new.md").write_text("# New\n\nBees dance.")
    done = run("upsert", "--input", folder, "--index-root", output, "--model", toy_model)
    assert done.exit_code == 0, done.stderr
    assert "1 new, 8 unchanged" in done.stdout and "skipped: 1 .zip" in done.stdout
    ids = tmp_path / "ids.txt"
    ids.write_text("new.md\npump.pdf#page=2\n")
    done = run("delete", "--input", ids, "--index-root", output)
    assert done.exit_code == 0 and "2 deleted" in done.stdout, done.stderr
    done = run("search", "drain the pump", "--index-root", output)
    assert "https://wiki.example/pump.pdf#page=1" in done.stdout
