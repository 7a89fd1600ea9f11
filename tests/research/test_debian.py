"""Made-up inputs of every source, laid out as on a Debian system, become a data folder that our readers take."""

import base64
import gzip
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from glow.collection import read_documents, read_qrels, read_queries
from research.debian import app, entry_pairs, later_passages, package_pairs, section_pair, synset_pairs, write
from research.prose import (
    Pair,
    Section,
    first_sentence,
    html_sections,
    make_pair,
    pod_sections,
    without_start,
    xml_sections,
)

LONG = "It turns the wheel of a small boat by itself, so that the crew can sleep while the wind is steady and kind."
PACKAGES = """Package: libtiller1
Description-md5: aa
Homepage: https://tiller.example

Package: tiller
Description-md5: bb
Homepage: https://tiller.example

Package: librust-one-dev
Description: one thing - Rust source code
 This package contains the source for the Rust one crate, made by debcargo for use with cargo and with dh-cargo.

Package: librust-two-dev
Description: two things - Rust source code
 This package contains the source for the Rust two crate, made by debcargo for use with cargo and with dh-cargo.
"""
TRANSLATION = f"""Package: libtiller1
Description-md5: aa
Description-en: autopilot of small boats (library)
 {LONG}
 .
 This package has the shared library.

Package: tiller
Description-md5: bb
Description-en: autopilot of small boats
 {LONG}
 .
 This package has the program.
"""
HTML = f"""<html><head><title>1. Boats — The Book</title></head><body><div class="navheader"><p>Next</p></div>
<h1>1. Boats<a class="headerlink">¶</a></h1><p>Short.</p><h2>1.1. Sails &amp; wind</h2><p>{LONG}<pre>code</pre></p>
<div class="para">And then it is there.</div>Next page</body></html>"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A system with package lists and a book."""
    lists, book = tmp_path / "root/var/lib/apt/lists", tmp_path / "root/usr/share/doc/boats-doc"
    for folder in (lists, book):
        folder.mkdir(parents=True)
    (lists / "x_main_binary-amd64_Packages.gz").write_bytes(gzip.compress(PACKAGES.encode()))
    (lists / "x_main_i18n_Translation-en").write_text(TRANSLATION, encoding="utf-8")
    (book / "index.html").write_text(HTML, encoding="utf-8")
    (book / "genindex.html").write_text(HTML, encoding="utf-8")
    return tmp_path / "root"


def test_a_package_is_asked_for_by_its_short_description_and_siblings_are_one(root: Path) -> None:
    pairs = list(package_pairs(root))
    assert [pair.id for pair in pairs] == ["deb:tiller", "deb:librust-one-dev"]
    text = f"{LONG} This package has the program."
    tiller = Pair("deb:tiller", "autopilot of small boats", "tiller", text, "https://tiller.example")
    assert pairs[0] == tiller


def test_a_page_gives_headings_those_above_them_and_prose() -> None:
    first, second = html_sections(HTML)
    assert (first.heading, first.text.strip()) == ("1. Boats", "Short.")
    assert (second.heading, second.parents) == ("1.1. Sails & wind", ["1. Boats", "1. Boats"])
    assert " ".join(second.text.split()) == f"{LONG} And then it is there."
    pair = section_pair(second, "book", "book:1")
    assert pair is not None
    assert (pair.query, pair.title) == ("Sails & wind", "Boats")


def test_docbook_and_pod_give_the_same_sections() -> None:
    docbook = f"<chapter><title>Boats</title><sect1><title>Sails</title><para>{LONG}</para></sect1></chapter>"
    pod = f"=head1 Boats\n\n=head2 Sails\n\n{LONG.replace('small', 'B<small>')}\n\n    code\n\n=cut\n"
    sections = [("Boats", [], ""), ("Sails", ["Boats"], LONG)]
    for found in (xml_sections(docbook), pod_sections(pod)):
        assert [(each.heading, each.parents, each.text.strip()) for each in found] == sections


def test_a_heading_that_says_nothing_gives_way_to_the_first_sentence() -> None:
    section = Section("Introduction", ["Boats"], f"A boat is no ship. {LONG} {LONG}")
    pair = section_pair(section, "book", "book:1")
    assert pair is not None
    assert (pair.query, pair.title, pair.text) == ("A boat is no ship", "Boats", f"{LONG} {LONG}")
    assert section_pair(Section("See also", [], LONG * 2), "book", "book:1") is None


def test_the_rest_of_a_section_comes_as_passages_that_their_first_sentences_ask_for() -> None:
    more = " ".join(f"Part {number} of the boat has a name. {LONG} {LONG}" for number in range(4))
    section = Section("Sails", ["Boats"], f"{LONG} {LONG} {more}")
    first = section_pair(section, "book", "book:1#0")
    assert first is not None
    later = list(later_passages(section, first))
    assert [pair.id for pair in later] == [f"book:1#0.{number + 1}" for number in range(len(later))]
    assert later
    for pair in later:
        assert pair.title == "Boats: Sails"
        assert pair.query in more
        assert pair.text not in first.text
    assert not list(later_passages(Section("Sails", ["Boats"], LONG), first))


def test_a_synset_is_asked_for_by_its_words_and_titled_by_what_it_is_a_kind_of() -> None:
    data = (
        "  1 a licence line | with a bar\n"
        "00000010 06 n 01 vessel 0 000 | a craft that is made to go on the water\n"
        "00000020 06 n 02 boat 0 row_boat 1 001 @ 00000010 n 0000 | a small vessel that you can row or sail on water\n"
    )
    pair = list(synset_pairs(data, "noun"))[1]
    assert (pair.id, pair.query, pair.title) == ("wn:noun-00000020", "boat, row boat", "vessel")
    assert pair.text == "a small vessel that you can row or sail on water"


def test_an_entry_of_a_dictionary_is_asked_for_by_its_first_sentence() -> None:
    entry = f"boat\n\n   <sea> A boat goes on {{water}}. {LONG}\n   {LONG}\n".encode()
    data = b"about it" + entry
    (pair,) = entry_pairs(f"00databaseinfo\tA\tI\nboat\t{number(8)}\t{number(len(entry))}\n", data, "sea")
    assert (pair.id, pair.query, pair.title) == ("dict-sea:8", "A boat goes on water", "boat")
    assert pair.text == f"{LONG} {LONG}"


def number(value: int) -> str:
    """A whole number below 4,096 in dictd's base 64, by way of the standard library's."""
    return base64.b64encode((value << 12).to_bytes(3, "big")).decode()[:2]


def test_texts_that_are_short_foreign_or_name_a_test_collection_are_refused() -> None:
    assert make_pair("x:1", "boat", "", LONG) is not None
    assert make_pair("x:1", "boat", "", "It is too short.") is None
    assert make_pair("x:1", "...", "", LONG) is None
    german = "das Boot fährt langsam hinaus aufs Meer und kehrt abends wieder heim " * 2
    assert make_pair("x:1", "boat", "", german) is None
    assert make_pair("x:1", "boat", "Cranfield boats", LONG) is None


def test_texts_are_cut_at_220_words_and_drawings_dropped() -> None:
    pair = make_pair("x:1", "boat", "", f"{LONG}\n|----+====+----|\n" + f"{LONG} " * 20)
    assert pair is not None
    assert 150 < len(pair.text.split()) <= 220
    assert pair.text.endswith("kind.")
    assert "---" not in pair.text


def test_the_query_is_taken_off_only_where_it_stands_alone() -> None:
    assert without_start("A boat. It floats.", "a boat") == "It floats."
    assert without_start("A boat is wet.", "a boat") == "A boat is wet."
    assert first_sentence("Use e.g. Linux. Or not.") == ("Use e.g. Linux.", "Or not.")


def test_equal_queries_are_one_and_those_of_more_than_five_documents_go(tmp_path: Path) -> None:
    pairs = [Pair(f"x:{n}", "Same thing" if n % 2 else "same  thing.", "", f"{LONG} {n}") for n in range(2)]
    pairs += [Pair(f"y:{n}", "installation", "", LONG) for n in range(6)]
    assert write(pairs, tmp_path) == (2, 1)
    assert [(row.query_id, row.document_id) for row in read_qrels(tmp_path / "qrels/train.tsv")] == [
        ("q-x:0", "x:0"),
        ("q-x:0", "x:1"),
    ]


def run(out: Path, root: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["--out", str(out), "--root", str(root), *options])


def test_the_command_writes_a_folder_our_readers_take_and_names_what_is_missing(
    root: Path, tmp_path: Path
) -> None:
    first = run(tmp_path / "a", root)
    assert first.exit_code == 0, first.output
    assert "wordnet: not on this machine; to have it: apt-get install wordnet-base" in first.output
    read = read_documents(tmp_path / "a/corpus.jsonl", ("url", "title", "text"))
    documents = {found.id: found for found in read}
    queries = {found.id: found.text for found in read_queries(tmp_path / "a/queries.jsonl")}
    judged = {row.document_id: queries[row.query_id] for row in read_qrels(tmp_path / "a/qrels/train.tsv")}
    assert judged.keys() == documents.keys()
    assert judged["book:doc/boats-doc/index.html#0"] == "Sails & wind"
    assert documents["deb:tiller"].metadata == {"source": "deb"}
    assert {name.partition(":")[0] for name in documents} == {"deb", "book"}
    assert "Package descriptions of Debian main" in (tmp_path / "a/README.md").read_text(encoding="utf-8")
    assert run(tmp_path / "b", root).exit_code == 0
    assert (tmp_path / "a/corpus.jsonl").read_bytes() == (tmp_path / "b/corpus.jsonl").read_bytes()


def test_the_command_takes_sources(root: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "a", root, "--sources", "packages").exit_code == 0
    documents = read_documents(tmp_path / "a/corpus.jsonl", ("text",))
    assert {document.metadata["source"] for document in documents} == {"deb"}
    assert run(tmp_path / "b", root, "--sources", "nothing").exit_code == 2
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "b", tmp_path / "empty").exit_code == 1
