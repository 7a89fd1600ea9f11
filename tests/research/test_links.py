"""Link texts become queries and anchors of the sections that they lead to."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from glow.training.data import read_collection
from glow.training.towers import TrainConfig
from research.links import app, html_parts, is_question, link_pairs, sections_of

GUIDE = """<html><body class="wy-body-for-nav"><nav><p>Menu of all pages that nobody asks for at all here</p></nav>
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
TEXT = "<p>Words that say enough about this matter to make a section.</p>"
SAILS = f"<h1>Sails</h1>{TEXT}<h2 id='reefing'>Reefing</h2>{TEXT[:-4]} See more.</p><h2 id='sheet'>The sheet</h2>{TEXT[:-4]} Again.</p>"
STORM = f"""<h1>Storms</h1><p>In a storm, <a href='sails.html#reefing'>1.2 make the sail smaller</a>, says the
<a href='sails.html#reefing'>next chapter</a>, <a href='sails.html#reefing'>reef</a>,
<a href='sails.html#sheet'>pull the <b>right</b> rope</a>, <a href='https://x.example/#y'>another site far away</a>.</p>
<h2 id='q'>How do I slow down?</h2>{TEXT[:-4]} By <a href='sails.html#sheet'>easing it</a>.</p>
<ul><li><a href='sails.html'>the whole page of sails</a></li></ul>"""


def package(root: Path, name: str = "boat") -> Path:
    folder = root / "usr/share/doc" / name
    folder.mkdir(parents=True)
    (folder / "sails.html").write_text(SAILS)
    (folder / "storm.html").write_text(STORM)
    (folder / "storm.de.html").write_text(STORM.replace("smaller", "kleiner"))
    (folder / "es").mkdir()
    spanish = STORM.replace("sails.html", "../sails.html").replace("smaller", "menor")
    (folder / "es" / "storm.html").write_text(spanish)
    (folder / "genindex.html").write_text(STORM.replace("smaller", "tiny"))
    return root


def test_a_links_text_asks_for_its_section(tmp_path: Path) -> None:
    (found,) = link_pairs(package(tmp_path))
    anchors = {each["_id"]: set(each["anchor"]) for each in found.documents}
    asked = {each: {text for text in found.queries if each in found.queries[text]} for each in anchors}
    reefing, sheet = "link:boat/sails#reefing", "link:boat/sails#sheet"
    assert asked[reefing] | anchors[reefing] == {"make the sail smaller"}
    assert asked[sheet] | anchors[sheet] == {"pull the right rope", "easing it", "How do I slow down?"}
    assert not any(asked[each] & anchors[each] for each in anchors), "it would give the query away"
    assert not asked["link:boat/sails#sails"] | anchors["link:boat/sails#sails"]


def test_what_leads_to_many_sections_asks_for_none(tmp_path: Path) -> None:
    root = package(tmp_path)
    links = "".join(f"<a href='many.html#s{number}'>what it is</a> " for number in range(4))
    sections = "".join(f"<h2 id='s{number}'>S{number}</h2>{TEXT[:-4]} {number}</p>" for number in range(4))
    (root / "usr/share/doc/boat/many.html").write_text(
        f"<h1>Many</h1><p>Of {links} and so on, words enough.</p>{sections}"
    )
    (found,) = link_pairs(root)
    assert "what it is" not in found.queries
    assert not any("what it is" in each["anchor"] for each in found.documents)


def test_a_part_knows_the_text_of_each_link() -> None:
    parts = html_parts(STORM.replace("https://x.example/#y", "http://[HOST]:PORT/"), "storm")
    for part in parts:
        assert len(part.links) == len(part.link_texts)
    assert " ".join(parts[0].link_texts[3].split()) == "pull the right rope"


def test_sections_and_functions_are_documents_with_the_anchors_that_people_gave_them() -> None:
    sections, addresses = sections_of(html_parts(GUIDE, "guide/sails"))
    reefing = "Take the sail in before the wind grows, not when it has grown. Wear gloves. halyard The rope for it. Then "
    assert {id_: (part.title, part.text) for id_, part in sections.items()} == {
        "guide/sails#sails": ("Sails", "A boat has a main sail, and often a jib before the mast."),
        "guide/sails#reefing": ("Sails: Reefing", reefing + "ease the sheet."),
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
    assert addresses["guide/sails", "alias"] == "guide/sails#sails"
    assert addresses["guide/sails", "sheet"] == "guide/sails#reefing"


@pytest.mark.parametrize(
    ("heading", "asks"),
    [
        ("How do I sail", True),
        ("The mast is gone?", True),
        ("I’m lost at sea", True),
        ("My sail is torn", True),
        ("Reefing", False),
        ("Why me", False),
        ("Notes about the mast", False),
        ("How do I…", False),
        ("How do I ...", False),
    ],
)
def test_headings_that_ask_are_told_from_others(heading: str, asks: bool) -> None:
    assert is_question(heading) is asks


def test_the_command_writes_a_folder_that_training_reads(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["--root", str(package(tmp_path)), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    collection = read_collection(tmp_path / "out", "train", TrainConfig(name="x").field_schema)
    (found,) = link_pairs(tmp_path)
    assert len(collection.documents) == len(found.documents)
    assert set(collection.queries) == set(found.queries)
