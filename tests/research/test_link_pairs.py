"""Link texts become queries and anchors of the sections that they lead to."""

from pathlib import Path

from research.questions.__main__ import link_pairs
from research.questions.parts import html_parts

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
    # A text is either a query or in the document, which would give it away.
    assert not any(asked[each] & anchors[each] for each in anchors)
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
