"""A checkout of tldr-pages, and the Cranfield collection in SMART format, become data folders."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import RecordError
from scripts.convert import TLDR_SPLITS, app, parse_page, share, split_of


def convert(name: str, source: Path, out: Path, code: int = 0) -> str:
    """What the command says."""
    done = CliRunner().invoke(app, [name, "--source", str(source), "--out", str(out)])
    assert done.exit_code == code, done.output
    return done.output


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def judgments(out: Path, split: str) -> list[tuple[str, str, int]]:
    return [(q.query_id, q.document_id, q.grade) for q in read_qrels(out / "qrels" / f"{split}.tsv")]


TAR = """# tar

> Archiving utility.
> Often combined with a compression method, such as `gzip` or `bzip2`.
> See also: `7z`, `zip`.
> More information: <https://www.gnu.org/software/tar/manual/tar.html>.

- [c]reate an archive and write it to a [f]ile:

`tar cf {{path/to/target.tar}} {{path/to/file1 path/to/file2 ...}}`

- E[x]tract an archive to `stdout`:

`tar xf {{path/to/source.tar}} {{[-O|--to-stdout]}} -o{{name}}`

- Show fields:

`docker inspect {{[-f|--format]}} '\\{\\{.LogPath\\}\\}' ${{{name}}}`
"""
ALIAS = """# gtar

> This command is an alias of GNU `tar`.

- View documentation for the original command:

`tldr tar`
"""


def make_pages(folder: Path) -> Path:
    """A checkout of `tar`, an alias, two damaged pages, a translation, and forty made-up pages."""
    common, linux, german = (folder / name for name in ("pages/common", "pages/linux", "pages.de/common"))
    for platform in (common, linux, german):
        platform.mkdir(parents=True)
        (platform / "tar.md").write_text(TAR, encoding="utf-8")
    (linux / "tar.md").unlink()
    (common / "gtar.md").write_text(ALIAS, encoding="utf-8")
    (common / "broken.md").write_text(TAR.replace("file2 ...}}`", "file2 ...}}"), encoding="utf-8")
    (common / "bytes.md").write_bytes(b"# a\n\xff")
    for number in range(40):
        intents = (f"Do the thing {number}", "Show help", f"List item {number // 3}", f"Once{number}")
        examples = "".join(f"- {intent}:\n\n`c{number} {{{{x}}}}`\n\n" for intent in intents)
        (linux / f"c{number}.md").write_text(f"# c{number}\n\n> Something.\n\n{examples}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def tldr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its data folder."""
    folder = tmp_path_factory.mktemp("tldr")
    assert "2 rejects" in convert("tldr", make_pages(folder / "tldr"), folder / "out")
    return folder / "out"


def test_a_page_becomes_its_fields() -> None:
    found = parse_page("common/tar", TAR)
    assert (found.title, found.url) == ("tar", "https://www.gnu.org/software/tar/manual/tar.html")
    assert found.see_also == ("7z", "zip")
    method = "Often combined with a compression method, such as gzip or bzip2."
    assert found.description == f"Archiving utility. {method}"
    create, extract = "create an archive and write it to a file", "Extract an archive to `stdout`"
    assert found.intents == (create, extract, "Show fields")
    assert found.commands == (
        "tar cf path/to/target.tar path/to/file1 path/to/file2 ...",
        "tar xf path/to/source.tar [-O|--to-stdout] -oname",
        "docker inspect [-f|--format] '\\{\\{.LogPath\\}\\}' ${name}",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# a\n\n> b\n", "found 1 titles, 0 intents and 0 commands"),
        ("# a\n\n- do it:\n", "1 intents and 0 commands"),
        ("- do it:\n\n`a`\n", "0 titles"),
        ("# a\n\n`a`\n", "found `a`"),
        ("# a\n\nfree text\n", "found free text"),
    ],
)
def test_a_damaged_page_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        parse_page("x", text)


def test_documents_are_the_english_pages_that_are_no_aliases_and_damaged_ones_are_kept_aside(
    tldr: Path,
) -> None:
    documents = {document["_id"]: document for document in read(tldr / "corpus.jsonl")}
    assert set(documents) == {"common/tar", *(f"linux/c{number}" for number in range(40))}
    tar = documents["common/tar"]
    assert list(tar) == ["_id", "url", "title", "anchor", "clicked_queries", "text"]
    assert tar["text"].startswith("Archiving utility. Often combined")
    assert "bzip2. tar cf path/to/target.tar path/to/file1 path/to/file2 ... ; tar xf path" in tar["text"]
    rejects = [reject["file"] for reject in read(tldr / "rejects.jsonl")]
    assert rejects == ["pages/common/broken.md", "pages/common/bytes.md"]


def test_an_intent_is_a_clicked_query_or_a_query_and_never_both(tldr: Path) -> None:
    queries = {query.id: query.text for query in read_queries(tldr / "queries.jsonl")}
    clicked = 0
    for document in read(tldr / "corpus.jsonl"):
        start = f"tldr-{document['_id']}-"
        own = [text for identifier, text in queries.items() if identifier.startswith(start)]
        assert not set(own) & set(document["clicked_queries"])
        clicked += len(document["clicked_queries"])
    assert 16 <= clicked <= 48, "a fifth of 163"


def test_no_page_has_a_query_that_it_answers_among_its_clicked_queries(tmp_path: Path) -> None:
    """An intent of several pages, however it is capitalised, is a clicked query of all of them or of none."""
    source, out = make_pages(tmp_path / "tldr"), tmp_path / "out"
    for path in sorted((source / "pages" / "linux").glob("c*.md"))[::2]:
        path.write_text(path.read_text(encoding="utf-8").replace("List", "LIST"), encoding="utf-8")
    convert("tldr", source, out)
    texts = {query.id: query.text.casefold() for query in read_queries(out / "queries.jsonl")}
    clicked = {
        document["_id"]: {text.casefold() for text in document["clicked_queries"]}
        for document in read(out / "corpus.jsonl")
    }
    judged = [row for split, _ in TLDR_SPLITS for row in judgments(out, split)]
    assert [query for query, *_ in judged if texts[query].startswith("list item")]
    assert any(text.startswith("list item") for found in clicked.values() for text in found)
    assert not [query for query, document, _ in judged if texts[query] in clicked[document]]


def test_an_intent_has_all_its_pages_up_to_three_and_is_dropped_above(tldr: Path) -> None:
    texts = {query.id: query.text for query in read_queries(tldr / "queries.jsonl")}
    assert "Show help" not in texts.values()
    assert not [text for text in texts.values() if text.startswith("Once")]
    relevant: dict[str, set[str]] = {}
    split_of_text: dict[str, set[str]] = {}
    for split, _ in TLDR_SPLITS:
        for query, document, _ in judgments(tldr, split):
            relevant.setdefault(query, set()).add(document)
            split_of_text.setdefault(texts[query], set()).add(split)
    assert set(relevant) == set(texts)
    shared = next(identifier for identifier, text in texts.items() if text == "List item 1")
    assert relevant[shared] == {"linux/c3", "linux/c4", "linux/c5"}
    assert all(len(splits) == 1 for splits in split_of_text.values())


def test_the_same_checkout_gives_the_same_bytes(tldr: Path, tmp_path: Path) -> None:
    convert("tldr", make_pages(tmp_path / "tldr"), tmp_path / "out")
    for path in sorted(tldr.rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "out" / path.relative_to(tldr)).read_bytes()


def test_splits_have_their_shares() -> None:
    keys = [f"key {number}" for number in range(4000)]
    counts = {name: sum(split_of(key, TLDR_SPLITS) == name for key in keys) / 4000 for name, _ in TLDR_SPLITS}
    assert counts == pytest.approx({"train": 0.75, "dev": 0.125, "test": 0.125}, abs=0.02)
    assert sum(share(key) < 0.2 for key in keys) / 4000 == pytest.approx(0.2, abs=0.02)


def test_fields_are_those_of_the_collection_at_hand(shared_data: Path, tldr: Path) -> None:
    for name in ("corpus.jsonl", "queries.jsonl"):
        with (shared_data / "tldr" / name).open(encoding="utf-8") as file:
            assert list(json.loads(file.readline())) == list(read(tldr / name)[0])


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
JUDGMENTS = "1 1 2 \n1 2 -1\n2 2  3 \n2 3 4\n2 9 1\n7 1 1\n1 1 9\n"


@pytest.fixture
def smart(tmp_path: Path) -> Path:
    """Cranfield as released."""
    folder = tmp_path / "cran"
    folder.mkdir()
    (folder / "cran.all.1400").write_text(DOCUMENTS)
    (folder / "cran.qry").write_text(QUERIES)
    (folder / "cranqrel").write_text(JUDGMENTS)
    return folder


def test_documents_have_title_citation_text_and_author(smart: Path, tmp_path: Path) -> None:
    convert("cranfield", smart, tmp_path / "out")
    title = "experimental investigation of the aerodynamics of a wing in a slipstream ."
    made = "an experimental study of a wing in a propeller slipstream was made ."
    flow = "simple shear flow past a flat plate in an incompressible fluid of small viscosity ."
    place = "department of aeronautical engineering, rensselaer polytechnic institute troy, n.y."
    expected = [
        ("1", title, ["j. ae. scs. 25, 1958, 324."], f"{title} {made}", "brenckman,m."),
        ("2", flow, [place], "simple shear flow .", "ting-yili"),
        ("3", "", [], "", ""),
    ]
    names = ("_id", "title", "anchor", "text", "author")
    rows = read(tmp_path / "out" / "corpus.jsonl")
    assert [tuple(row[name] for name in names) for row in rows] == expected
    assert all(row["url"] == "" and row["clicked_queries"] == [] for row in rows)
    assert len(list(read_documents(tmp_path / "out" / "corpus.jsonl", ["title", "text"]))) == 2


def test_judgments_are_binary_by_the_place_of_the_query_and_bad_ones_are_kept_aside(
    smart: Path, tmp_path: Path
) -> None:
    output, out = convert("cranfield", smart, tmp_path / "out"), tmp_path / "out"
    queries = [(query.id, query.text) for query in read_queries(out / "queries.jsonl")]
    assert [place for place, _ in queries] == ["1", "2"]
    assert queries[1][1] == "what problems of heat conduction ."
    assert judgments(out, "test") == [("1", "1", 1), ("1", "2", 0), ("2", "2", 1), ("2", "3", 1)]
    assert [(row["file"], row["place"], row["reason"]) for row in read(out / "rejects.jsonl")] == [
        ("cranqrel", "line 5", "no document has this number"),
        ("cranqrel", "line 6", "expected a query from 1 to 2"),
        ("cranqrel", "line 7", "expected a query, a document and a grade of -1 or 1 to 4"),
    ]
    assert "3 rejects (see rejects.jsonl)" in output


def test_what_cannot_be_converted_is_named_and_nothing_is_left(smart: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert "choose another --out" in convert("cranfield", smart, out, code=2)
    out.rmdir()
    assert "expected a checkout of tldr-pages/tldr" in convert("tldr", tmp_path, out, code=2)
    (smart / "cran.all.1400").write_text("<html>not found</html>\n")
    assert "0 documents and 2 queries" in convert("cranfield", smart, out, code=2)
    (smart / "cran.all.1400").unlink()
    message = "has no cran.all.1400; expected the unpacked files"
    assert message in convert("cranfield", smart, out, code=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cran"]


def test_the_real_collection_has_this_layout(shared_data: Path, smart: Path, tmp_path: Path) -> None:
    """The first document above is the released one, cut short: but for the cut it equals the collection at hand."""
    convert("cranfield", smart, tmp_path / "out")
    first = read(tmp_path / "out" / "corpus.jsonl")[0]
    with (shared_data / "cranfield" / "corpus.jsonl").open() as file:
        released = json.loads(file.readline())
    assert list(first) == list(released)
    assert released["text"].startswith(first["text"].removesuffix(" made ."))
    assert {**first, "text": ""} == {**released, "text": ""}
