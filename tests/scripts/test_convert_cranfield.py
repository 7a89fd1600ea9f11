"""The Cranfield collection in SMART format, as released, becomes a data folder."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glow.collection import read_documents, read_qrels, read_queries
from scripts.convert import app

DOCUMENTS = """.I 1
.T
experimental investigation of the aerodynamics of a
wing in a slipstream .
.A
brenckman,m.
.B
j. ae. scs. 25, 1958, 324.
.W
experimental investigation of the aerodynamics of a
wing in a slipstream .
  an experimental study of a wing in a propeller slipstream was
made .
.I 2
.T
simple shear flow past a flat plate in an incompressible fluid of small
viscosity .
.A
ting-yili
.B
department of aeronautical engineering, rensselaer polytechnic
institute
troy, n.y.
.W
simple shear flow .
.I 3
.T
.A
.B
.W
"""
QUERIES = """.I 001
.W
what similarity laws must be obeyed when constructing aeroelastic models
of heated high speed aircraft .
.I 004
.W
what problems of heat conduction .
"""
JUDGEMENTS = "1 1 2 \n1 2 -1\n2 2  3 \n2 3 4\n2 9 1\n7 1 1\n1 1 9\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "cran"
    folder.mkdir()
    (folder / "cran.all.1400").write_text(DOCUMENTS)
    (folder / "cran.qry").write_text(QUERIES)
    (folder / "cranqrel").write_text(JUDGEMENTS)
    return folder


def convert(source: Path, out: Path) -> str:
    done = CliRunner().invoke(app, ["cranfield", "--source", str(source), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return done.output


def test_documents_have_title_citation_text_and_author(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out")
    assert [json.loads(line) for line in (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()] == [
        {
            "_id": "1",
            "url": "",
            "title": "experimental investigation of the aerodynamics of a wing in a slipstream .",
            "anchor": ["j. ae. scs. 25, 1958, 324."],
            "clicked_queries": [],
            "text": "experimental investigation of the aerodynamics of a wing in a slipstream . "
            "an experimental study of a wing in a propeller slipstream was made .",
            "author": "brenckman,m.",
        },
        {
            "_id": "2",
            "url": "",
            "title": "simple shear flow past a flat plate in an incompressible fluid of small viscosity .",
            "anchor": ["department of aeronautical engineering, rensselaer polytechnic institute troy, n.y."],
            "clicked_queries": [],
            "text": "simple shear flow .",
            "author": "ting-yili",
        },
        {"_id": "3", "url": "", "title": "", "anchor": [], "clicked_queries": [], "text": "", "author": ""},
    ]
    assert len(list(read_documents(tmp_path / "out" / "corpus.jsonl", ["title", "text"]))) == 2


def test_queries_are_numbered_by_their_place(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out")
    queries = list(read_queries(tmp_path / "out" / "queries.jsonl"))
    assert [query.id for query in queries] == ["1", "2"]
    assert queries[1].text == "what problems of heat conduction ."


def test_judgements_are_binary_and_bad_ones_are_kept_aside(source: Path, tmp_path: Path) -> None:
    output = convert(source, tmp_path / "out")
    qrels = list(read_qrels(tmp_path / "out" / "qrels" / "test.tsv"))
    assert [(q.query_id, q.document_id, q.grade) for q in qrels] == [
        ("1", "1", 1),
        ("1", "2", 0),
        ("2", "2", 1),
        ("2", "3", 1),
    ]
    rejects = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert [(r["file"], r["place"], r["reason"]) for r in rejects] == [
        ("cranqrel", "line 5", "no document has this number"),
        ("cranqrel", "line 6", "expected a query from 1 to 2"),
        ("cranqrel", "line 7", "expected a query, a document and a grade of -1 or 1 to 4"),
    ]
    assert "3 rejects (see rejects.jsonl)" in output


def test_a_wrong_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "cran.qry").write_text(QUERIES)
    done = CliRunner().invoke(app, ["cranfield", "--source", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "has no cran.all.1400, cranqrel; expected the unpacked files" in done.output
    assert not (tmp_path / "out").exists()


def test_what_is_there_already_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = CliRunner().invoke(app, ["cranfield", "--source", str(source), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "choose another --out" in done.output


def test_files_without_records_leave_nothing_behind(source: Path, tmp_path: Path) -> None:
    (source / "cran.all.1400").write_text("<html>not found</html>\n")
    done = CliRunner().invoke(app, ["cranfield", "--source", str(source), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "0 documents and 2 queries" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cran"]


def test_the_real_collection_has_this_layout(shared_data: Path, source: Path, tmp_path: Path) -> None:
    """The first document above is the released one, cut short: but for the cut it equals the collection at hand."""
    convert(source, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "corpus.jsonl").read_text().splitlines()[0])
    with (shared_data / "cranfield" / "corpus.jsonl").open() as file:
        wanted = json.loads(file.readline())
    assert list(found) == list(wanted)
    assert wanted["text"].startswith(found["text"].removesuffix(" made ."))
    assert {**found, "text": ""} == {**wanted, "text": ""}
