"""Small pages as packages hold them become documents, and a FAQ's questions are judged by what their answers link to."""

import json
from pathlib import Path

import pytest

from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import InputError
from research.questions.__main__ import (
    faq_questions,
    half_of,
    howto_questions,
    is_question,
    make_documents,
    write_collection,
)
from research.questions.parts import Part, Source, html_parts, info_parts, pod_parts, read_parts

SAILS = """<html><body class="wy-body-for-nav"><nav><p>Menu of all pages that nobody asks for at all here</p></nav>
<section id="sails"><span id="alias"></span><h1>Sails<a class="headerlink" href="#sails">¶</a></h1>
<p>A boat has a main sail, and often a jib before the mast.</p>
<section id="reefing"><h2>Reefing</h2><p>Take the sail in before the wind grows, not when it has grown.</p>
<div class="note"><h3>Note</h3><p>Wear gloves.</p></div>
<dl><dt class="sig" id="sail.furl"><code>furl</code>(turns)<a class="headerlink" href="#x">¶</a></dt>
<dd><p>Roll the jib around its stay by the given number of turns.</p></dd>
<dt class="sig" id="sail.hoist">hoist()</dt><dd><p>Pull the sail up to the top of the mast, quickly.</p></dd>
<dt>halyard</dt><dd><p>The rope for it.</p></dd></dl>
<dl><dt id="sail.luff">luff</dt><dd><p>Turn the bow into the wind until the sails flap.</p></dd></dl>
<p>Then <span id="sheet"></span>ease the sheet.</p></section></section></body></html>"""
FAQ = """<h1 id="faq">Questions</h1><p>What people ask most of all about boats and about sails.</p>
<h2 id="storm"><a class="toc-backref" href="#id1">What do I do in a storm?</a></h2>
<p>See <a href="../sails.html#reefing">the section</a>, <a href="../sails.html#sail.furl">furl</a> and
<a href="https://boats.example">this</a> and <a href="#paint">paint</a>.</p>
<h2 id="paint">Which colour is my boat?</h2><p>It has the colour that you painted it with last year.</p>
<h3 id="blue">Blue hulls</h3><p>A blue hull gets warm in the sun, so mind the glue.</p>
<h3 id="red">Why not red at all?</h3><p>Red paint fades in three summers, as everybody at sea knows.</p>
<h2 id="more">Further reading</h2><p>There are books about boats in every library of the land.</p>"""


def _faq() -> list[Part]:
    """The FAQ one folder below the guide, as its links say."""
    return [*html_parts(SAILS, "guide/sails"), *html_parts(FAQ, "guide/faq/general")]


def test_sections_and_functions_are_documents_with_the_anchors_that_people_gave_them() -> None:
    documents = make_documents(html_parts(SAILS, "guide/sails"))
    assert {each.id: (each.title, each.text) for each in documents.by_id.values()} == {
        "guide/sails#sails": ("Sails", "A boat has a main sail, and often a jib before the mast."),
        "guide/sails#reefing": (
            "Sails: Reefing",
            "Take the sail in before the wind grows, not when it has grown. Wear gloves. halyard The rope for it. Then "
            "ease the sheet.",
        ),
        "guide/sails#sail.furl": (
            "Sails: Reefing: furl(turns)",
            "Roll the jib around its stay by the given number of turns.",
        ),
        "guide/sails#sail.hoist": (
            "Sails: Reefing: hoist()",
            "Pull the sail up to the top of the mast, quickly.",
        ),
        "guide/sails#sail.luff": ("Sails: Reefing: luff", "Turn the bow into the wind until the sails flap."),
    }


def test_links_lead_to_sections_functions_other_names_and_pages() -> None:
    documents = make_documents(html_parts(SAILS, "guide/sails"))

    def target(anchor: str) -> list[str]:
        return documents.targets([("guide/sails", anchor)])

    assert target("sail.furl") == ["guide/sails#sail.furl"]
    assert target("alias") == ["guide/sails#sails"]
    assert target("sheet") == ["guide/sails#reefing"]
    assert target("") == ["guide/sails#sails"]
    assert target("keel") == []
    assert documents.targets([("guide/sails", "")], whole_pages="^other") == []
    twice = [("guide/sails", "reefing"), ("guide/sails", "sheet")]
    assert documents.targets(twice) == ["guide/sails#reefing"]


def test_an_answer_that_links_is_left_out_and_one_that_does_not_loses_its_question() -> None:
    documents, questions = faq_questions(_faq(), "/faq/", own_answers=True)
    assert {each.text: each.answers for each in questions} == {
        "What do I do in a storm?": ("guide/sails#reefing", "guide/sails#sail.furl"),
        "Which colour is my boat?": ("guide/faq/general#paint", "guide/faq/general#blue"),
        "Why not red at all?": ("guide/faq/general#red",),
    }
    assert [each for each in documents.by_id if "faq" in each] == [
        "guide/faq/general#paint",
        "guide/faq/general#blue",
        "guide/faq/general#red",
    ]
    shown = " ".join(f"{each.url} {each.title} {each.text}" for each in documents.by_id.values())
    assert not any(
        words in shown for words in ("colour is my", "not red", "storm", "#paint", "Further", "most of all")
    )
    assert documents.by_id["guide/faq/general#blue"].title == "Questions: Blue hulls"


def test_without_own_answers_the_whole_faq_is_out() -> None:
    documents, questions = faq_questions(_faq(), "/faq/", own_answers=False)
    assert [each.text for each in questions] == ["What do I do in a storm?"]
    assert not any("faq" in each for each in documents.by_id)


def test_what_many_answers_mention_answers_none_of_them() -> None:
    page = "<h1>Questions</h1>" + "".join(
        f"<h2 id='q{number}'>What about boat number {number}?</h2><p><a href='sails.html#reefing'>reef</a></p>"
        for number in range(6)
    )
    parts = [*html_parts(SAILS, "sails"), *html_parts(page, "faq")]
    assert faq_questions(parts, "^faq$", own_answers=True)[1] == []
    fewer = [part for part in parts if "number 5" not in part.heading]
    assert len(faq_questions(fewer, "^faq$", own_answers=True)[1]) == 5


def test_headings_that_ask_are_told_from_others() -> None:
    asking = ["How do I sail", "The mast is gone?", "I’m lost at sea", "My sail is torn"]
    assert [each for each in asking if not is_question(each)] == []
    other = ["Reefing", "Why me", "Notes about the mast", "How do I…", "How do I ..."]
    assert [each for each in other if is_question(each)] == []


def test_pod_links_lead_to_functions_sections_and_modules() -> None:
    functions = """=head1 NAME\n\nperlfunc - functions\n\n=head1 DESCRIPTION\n\n=over 4\n\n=item furl TURNS\nX<furl>\n
=item furl\n\nRolls the C<jib> around its stay by so many turns, B<fast>.\n\n    code is no text at all\n\n=back\n\n=cut\n"""
    module = "sub x { }\n\n=head1 NAME\n\nBoat::Oar - row a boat\n\n=head1 SYNOPSIS\n\nUse it in a boat that has no sail at all.\n\n"
    module += "=head1 DESCRIPTION\n\nOars move boats when there is no wind to speak of.\n\n"
    module += "=cut\n\nsub y { }\n"
    faq = """=head1 Q\n\n=head2 How do I row a boat?\n\nSee L<perlfunc/furl>, L<the oar|Boat::Oar>, L<perlfunc>, L<http://x.example/y>
and L<Boat::Oar/"SYNOPSIS">. I<Never> write E<lt>.\n"""
    parts = [*pod_parts(functions, "perlfunc"), *pod_parts(module, "Boat::Oar"), *pod_parts(faq, "perlfaq1")]
    documents, questions = faq_questions(parts, "^perlfaq", own_answers=False, whole_pages="^(?!perl)")
    assert [each.answers for each in questions] == [
        ("perlfunc#furl_TURNS", "Boat::Oar#DESCRIPTION", "Boat::Oar#SYNOPSIS")
    ]
    assert (
        documents.by_id["perlfunc#furl_TURNS"].text == "Rolls the jib around its stay by so many turns, fast."
    )
    described = documents.by_id["Boat::Oar#DESCRIPTION"]
    assert described.text == "Boat::Oar - row a boat. Oars move boats when there is no wind to speak of."


def test_an_info_file_has_a_part_for_each_node() -> None:
    source = "intro\n\x1f\nFile: b.info,  Node: Top,  Next: Oars,  Up: (dir)\n\nBoats\n*****\n\n* Menu:\n\n* Oars::\n"
    source += "\x1f\nFile: b.info,  Node: Oars,  Prev: Top,  Up: Top\n\n1.1 How do I row?\n=================\n\nSit *note Top:: down.\n"
    top, oars = info_parts(source, "b")
    assert (top.heading, top.text) == ("Boats", "")
    assert (oars.heading, oars.parents, oars.text, oars.links) == (
        "How do I row?",
        ["Boats"],
        "Sit Top down.",
        [("b", "Top")],
    )


def test_halves_are_by_the_text_alone_and_the_same_everywhere() -> None:
    """`printf '%s' 'how do i row a boat' | sha256sum` begins with 7c, which is even; the other's with 5f."""
    texts = ("How do I row a boat?", "how do i  row a boat", "Who is at the helm?")
    assert [half_of(text) for text in texts] == ["dev", "dev", "test"]
    earlier = {"who is at the helm"}
    assert half_of("Who is at the helm?", earlier) == "dev"
    assert half_of("How do I row a boat?", earlier) == "test"


def test_a_collection_is_written_as_our_readers_take_it(tmp_path: Path) -> None:
    documents, questions = faq_questions(_faq(), "/faq/", own_answers=True)
    counts = write_collection(tmp_path, documents, questions)
    assert [each.id for each in read_documents(tmp_path / "corpus.jsonl", ("url", "title", "text"))] == list(
        documents.by_id
    )
    texts = [each.text for each in read_queries(tmp_path / "queries.jsonl")]
    assert texts == [each.text for each in questions]
    judged = {half: list(read_qrels(tmp_path / "qrels" / f"{half}.tsv")) for half in ("dev", "test")}
    assert counts["documents"] == 8
    assert {half: len({each.query_id for each in judged[half]}) for half in judged} == {
        "dev": counts["dev"],
        "test": counts["test"],
    }
    told = {(each.query_id, each.document_id) for each in (*judged["dev"], *judged["test"])}
    assert told == {(each.id, answer) for each in questions for answer in each.answers}


def test_an_answer_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    documents = make_documents(html_parts(SAILS, "sails"))
    path = tmp_path / "boats.jsonl"
    good = {"id": "a", "text": "the wind gets stronger", "answers": ["sails#reefing"]}
    path.write_text(json.dumps(good) + "\n")
    assert [each.answers for each in howto_questions(path, documents)] == [("sails#reefing",)]
    bad = {"id": "b", "text": "row the boat", "answers": ["sails#reefing", "sails#oars"]}
    path.write_text("".join(json.dumps(each) + "\n" for each in (good, bad)))
    with pytest.raises(InputError, match=r"boats\.jsonl.*b: no document sails#oars"):
        howto_questions(path, documents)
    for faulty, said in (
        ({**good, "answers": []}, "0 answers"),
        ({**good, "answers": ["sails#reefing"] * 5}, "5 ans"),
    ):
        path.write_text(json.dumps(faulty) + "\n")
        with pytest.raises(InputError, match=said):
            howto_questions(path, documents)
    path.write_text((json.dumps(good) + "\n") * 2)
    with pytest.raises(InputError, match="twice"):
        howto_questions(path, documents)


def test_pages_that_are_no_documents_and_missing_packages(tmp_path: Path) -> None:
    source = Source("boats-doc", "1.0", "usr/share/doc", "https://boats.example/", "none", leave_out="^news$")
    with pytest.raises(InputError, match=r"apt-get download boats-doc=1\.0"):
        list(read_parts(source, tmp_path))
    folder = tmp_path / "boats-doc" / "usr/share/doc"
    folder.mkdir(parents=True)
    for name in ("sails", "news", "genindex"):
        (folder / f"{name}.html").write_text(SAILS)
    parts = list(read_parts(source, tmp_path))
    assert {part.page for part in parts} == {"sails"}
    assert make_documents(parts).by_id["sails#sail.furl"].url == "https://boats.example/sails.html#sail.furl"
