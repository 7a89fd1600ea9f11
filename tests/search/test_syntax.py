"""The syntax of queries: what it is, what stays words, and which documents it leaves."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from glow.index import Index, RowMask
from glow.index.stored_fields import STORED_FIELDS
from glow.search import Constraint, analyze_query, constraint_mask
from glow.search.syntax import MAX_PARTS, MOST_WORDS, Part, parse
from tests.made_index import deleted, made, opened, upserted, write

FIELDS = ("title", "text")


@pytest.mark.parametrize(
    ("text", "searched", "parts"),
    [
        ('"desk lamp"', "desk lamp", [Part("desk lamp", is_phrase=True)]),
        ("red “desk lamp”", "red desk lamp", [Part("desk lamp", is_phrase=True)]),
        ("desk -lamp", "desk", [Part("lamp", excluded=True)]),
        ('-"desk lamp" red', "red", [Part("desk lamp", excluded=True, is_phrase=True)]),
        ("title:lamp red", "lamp red", [Part("lamp", "title")]),
        ('title:"desk lamp"', "desk lamp", [Part("desk lamp", "title", is_phrase=True)]),
        ("red -title:lamp", "red", [Part("lamp", "title", excluded=True)]),
        ("e-mail -e-mail", "e-mail", [Part("e-mail", excluded=True)]),
    ],
)
def test_the_parts_of_a_query(text: str, searched: str, parts: list[Part]) -> None:
    found = parse(text, FIELDS)
    assert (found[0], [part for part in found[1] if not part.is_plain]) == (searched, parts)


@pytest.mark.parametrize(
    "text",
    [
        "", "desk lamp", '"desk lamp', 'desk"', '""', '" "', '27" or 24" monitor', 'a"b c"d', "-", "well - known",
        "-lamp", '-"desk lamp"', "-5", "2020-2024", "ls -la", "gcc -o file", "--option file", "red -(lamp)", "e-mail",
        "colour:red", 'colour:"dark red"', "title: lamp", "http://a.b/c", "10:30", "-colour:red", "…:… -…",
    ],
)  # fmt: skip
def test_what_is_not_well_formed_is_words(text: str) -> None:
    assert parse(text, FIELDS) == (text, (Part(text),))


def test_a_query_has_a_bounded_number_of_parts() -> None:
    _, parts = parse("x " + "-abc " * 100, FIELDS)
    assert len([part for part in parts if part.excluded]) == MAX_PARTS


TEXTS = {
    "lamp": ("Desk lamp", "A lamp for every desk."),
    "lamps": ("Desk lamps", "Lamps that stand on desks."),
    "marks": ("Shelf", "Beside the DESK, lamp: brass. In C++ and to be or not to be."),
    "accent": ("Shelf", "À désk lämp. Straße."),
    "joined": ("Shelf", "A desk\u00adlamp, desklamp, xdesk lamp, desk lampé"),
    "chair": ("Chair", "A desk, a chair and a lamp; not in C"),
    "gone": ("Gone", "the only green desk lamp"),
}  # fmt: skip


@pytest.fixture(scope="module")
def index(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """A base with a deleted document, and a delta that replaces one and adds one."""
    folder = tmp_path_factory.mktemp("syntax")
    records = [
        {"_id": name, "title": title, "text": text, "brand": "Silver Fox", "care": "wipe the brass"}
        for name, (title, text) in TEXTS.items()
    ]
    records[5] |= {"brand": "Fox", "care": "wipe the wood"}
    old = [{**each, "text": "old desk lamp"} for each in records]
    root = made(
        toy_model,
        write(folder / "documents.jsonl", old[:4] + old[6:]),
        folder / "index",
        text_field=("care",),
    )
    upserted(root, toy_model, records[1:6])
    upserted(root, toy_model, records[:1])
    deleted(root, "gone")
    return opened(root)


def nothing() -> None: ...


def left(index: Index, text: str, among: Sequence[str] | None = None) -> set[str]:
    """The documents that the constraints of a query leave."""
    reading, allowed = analyze_query(index, text, syntax="auto"), None
    if among is not None:
        mask = np.zeros(index.view.rows.documents, np.bool_)
        mask[index[STORED_FIELDS].find_all(among)] = True
        allowed = RowMask(mask)
    mask_found = constraint_mask(index, reading.constraints, allowed, nothing)
    if mask_found is None:
        return {document.id for document in index[STORED_FIELDS].scan()}
    return set(index[STORED_FIELDS].ids(mask_found.rows.tolist()))


EVERY = set(TEXTS) - {"gone"}


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ('"desk lamp"', {"lamp", "marks", "accent"}),
        ("“Desk LAMPS”", {"lamps"}),
        ('title:"desk lamp"', {"lamp"}),
        ('"strasse"', {"accent"}),
        ('"to be or not to be"', {"marks"}),
        ('"C++"', {"marks"}),
        ("title:lamp", {"lamp", "lamps"}),  # other forms of a word count without quotes
        ("desk -lamp", set()),
        ('desk -"lamp"', {"lamps"}),
        ("desk -title:lamp", EVERY - {"lamp", "lamps"}),
        ('desk -"desk lamp"', EVERY - {"lamp", "marks", "accent"}),
        ('"desk lamp" -beside', {"lamp", "accent"}),
        ('"desk lamp" title:shelf', {"marks", "accent"}),
        ('"silver fox"', EVERY - {"chair"}),
        ("care:woods", {"chair"}),
        ('care:"the brass"', EVERY - {"chair"}),
        ("chair -brass", {"chair"}),
        ("text:brass", {"marks"}),
        # What no document satisfies is words.
        ('"green desk lamp"', set()), ("title:brass desk", set()), ('"brass desk lamp" red', set()), ("desk -green", EVERY),
    ],
)  # fmt: skip
def test_the_documents_that_constraints_leave(index: Index, text: str, documents: set[str]) -> None:
    assert left(index, text) == documents


def test_a_phrase_is_looked_for_among_allowed_documents(index: Index) -> None:
    assert left(index, '"desk lamp"', ["lamp", "chair"]) == {"lamp"}
    assert left(index, '"desk lamp"', ["lamps", "chair"]) == set()


def test_a_search_ends_between_documents(index: Index) -> None:
    def check() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        constraint_mask(index, [Constraint(("desk", "lamp"))], None, check)


def test_a_phrase_has_a_bounded_number_of_words(index: Index) -> None:
    (constraint,) = analyze_query(index, f'"{"desk " * 200}"', syntax="auto").constraints
    assert constraint.words == ("desk",) * MOST_WORDS


def test_words_of_phrases_and_excluded_words_stay_as_they_are(index: Index) -> None:
    reading = analyze_query(index, 'desc chiar -chiar "desk chiar"', syntax="auto")
    assert (reading.text, dict(reading.corrected)) == (
        "desk chair  desk chiar",
        {"chiar": "chair", "desc": "desk"},
    )
    plain = analyze_query(index, 'desk -lamp "a b"')
    assert (plain.text, plain.constraints) == ('desk -lamp "a b"', ())
