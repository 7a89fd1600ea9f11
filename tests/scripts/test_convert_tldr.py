"""A checkout of tldr-pages becomes a data folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glow.collection import read_qrels, read_queries
from glow.errors import RecordError
from scripts.convert import TLDR_SPLITS, app, parse_page, share, split_of

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


def page(title: str, *intents: str) -> str:
    return f"# {title}\n\n> Something.\n\n" + "".join(
        f"- {intent}:\n\n`{title} {{{{x}}}}`\n\n" for intent in intents
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pages = tmp_path / "tldr" / "pages"
    for platform in ("common", "linux"):
        (pages / platform).mkdir(parents=True)
    (pages / "common" / "tar.md").write_text(TAR, encoding="utf-8")
    (pages / "common" / "gtar.md").write_text(ALIAS, encoding="utf-8")
    (pages / "common" / "broken.md").write_text(TAR.replace("file2 ...}}`", "file2 ...}}"), encoding="utf-8")
    (pages / "common" / "bytes.md").write_bytes(b"# a\n\xff")
    for number in range(40):
        intents = [f"Do the thing {number}", "Show help", f"List item {number // 3}", f"Once{number}"]
        (pages / "linux" / f"c{number}.md").write_text(page(f"c{number}", *intents), encoding="utf-8")
    (tmp_path / "tldr" / "pages.de" / "common").mkdir(parents=True)
    (tmp_path / "tldr" / "pages.de" / "common" / "tar.md").write_text(TAR, encoding="utf-8")
    return tmp_path / "tldr"


def convert(source: Path, out: Path) -> str:
    done = CliRunner().invoke(app, ["tldr", "--source", str(source), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return done.output


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


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


def test_documents_are_the_english_pages_that_are_no_aliases(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out")
    documents = {document["_id"]: document for document in read(tmp_path / "out" / "corpus.jsonl")}
    assert set(documents) == {"common/tar", *(f"linux/c{number}" for number in range(40))}
    tar = documents["common/tar"]
    assert list(tar) == ["_id", "url", "title", "anchor", "clicked_queries", "text"]
    assert tar["text"].startswith("Archiving utility. Often combined")
    assert "bzip2. tar cf path/to/target.tar path/to/file1 path/to/file2 ... ; tar xf path" in tar["text"]


def test_damaged_pages_are_kept_aside(source: Path, tmp_path: Path) -> None:
    output = convert(source, tmp_path / "out")
    rejects = read(tmp_path / "out" / "rejects.jsonl")
    assert [reject["file"] for reject in rejects] == ["pages/common/broken.md", "pages/common/bytes.md"]
    assert "2 rejects" in output


def test_an_intent_is_a_clicked_query_or_a_query_and_never_both(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out")
    queries = {query.id: query.text for query in read_queries(tmp_path / "out" / "queries.jsonl")}
    clicked = 0
    for document in read(tmp_path / "out" / "corpus.jsonl"):
        start = f"tldr-{document['_id']}-"
        own = [text for identifier, text in queries.items() if identifier.startswith(start)]
        assert not set(own) & set(document["clicked_queries"])
        clicked += len(document["clicked_queries"])
    assert 16 <= clicked <= 48, "a fifth of 163"


def test_no_page_has_a_query_that_it_answers_among_its_clicked_queries(source: Path, tmp_path: Path) -> None:
    """An intent of several pages, however it is capitalised, is a clicked query of all of them or of none."""
    for path in sorted((source / "pages" / "linux").glob("c*.md"))[::2]:
        path.write_text(path.read_text(encoding="utf-8").replace("List", "LIST"), encoding="utf-8")
    convert(source, tmp_path / "out")
    out = tmp_path / "out"
    texts = {query.id: query.text.casefold() for query in read_queries(out / "queries.jsonl")}
    clicked = {
        document["_id"]: {text.casefold() for text in document["clicked_queries"]}
        for document in read(out / "corpus.jsonl")
    }
    judged = [qrel for split, _ in TLDR_SPLITS for qrel in read_qrels(out / "qrels" / f"{split}.tsv")]
    assert [qrel for qrel in judged if texts[qrel.query_id].startswith("list item")]
    assert any(text.startswith("list item") for found in clicked.values() for text in found)
    assert not [qrel for qrel in judged if texts[qrel.query_id] in clicked[qrel.document_id]]


def test_an_intent_has_all_its_pages_up_to_three_and_is_dropped_above(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out")
    out = tmp_path / "out"
    texts = {query.id: query.text for query in read_queries(out / "queries.jsonl")}
    assert "Show help" not in texts.values()
    assert not [text for text in texts.values() if text.startswith("Once")]
    relevant: dict[str, set[str]] = {}
    split_of_text: dict[str, set[str]] = {}
    for split, _ in TLDR_SPLITS:
        for qrel in read_qrels(out / "qrels" / f"{split}.tsv"):
            relevant.setdefault(qrel.query_id, set()).add(qrel.document_id)
            split_of_text.setdefault(texts[qrel.query_id], set()).add(split)
    assert set(relevant) == set(texts)
    shared = next(identifier for identifier, text in texts.items() if text == "List item 1")
    assert relevant[shared] == {"linux/c3", "linux/c4", "linux/c5"}
    assert all(len(splits) == 1 for splits in split_of_text.values())


def test_the_same_checkout_gives_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        convert(source, tmp_path / name)
    for path in sorted((tmp_path / "a").rglob("*.*")):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_splits_have_their_shares() -> None:
    keys = [f"key {number}" for number in range(4000)]
    counts = {name: sum(split_of(key, TLDR_SPLITS) == name for key in keys) / 4000 for name, _ in TLDR_SPLITS}
    assert counts == pytest.approx({"train": 0.75, "dev": 0.125, "test": 0.125}, abs=0.02)
    assert sum(share(key) < 0.2 for key in keys) / 4000 == pytest.approx(0.2, abs=0.02)


def test_a_wrong_folder_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["tldr", "--source", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "expected a checkout of tldr-pages/tldr" in done.output


def test_fields_are_those_of_the_collection_at_hand(shared_data: Path, source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "out")
    for name in ("corpus.jsonl", "queries.jsonl"):
        with (shared_data / "tldr" / name).open(encoding="utf-8") as file:
            assert list(json.loads(file.readline())) == list(read(tmp_path / "out" / name)[0])
