"""Which documents match: by the syntax of a query, and as a plain look at every document says of its words."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.index import Index, RowMask
from glow.index.postings import ImpactsView
from glow.index.stored_fields import STORED_FIELDS
from glow.search import Constraint, analyze_query, constraint_mask
from glow.search.matches import SOME, WordMatching
from glow.search.query import Others
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
    source = write(folder / "documents.jsonl", old[:4] + old[6:])
    root = made(toy_model, source, folder / "index", text_field=("care",))
    upserted(root, toy_model, records[1:6])
    upserted(root, toy_model, records[:1])
    deleted(root, "gone")
    return opened(root)


def nothing() -> None: ...


def left(index: Index, text: str, among: Sequence[str] | None = None) -> set[str]:
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
    assert reading.text == "desk chair  desk chiar"
    assert dict(reading.corrected) == {"chiar": "chair", "desc": "desk"}
    plain = analyze_query(index, 'desk -lamp "a b"')
    assert (plain.text, plain.constraints) == ('desk -lamp "a b"', ())


WORDS = ("pump", "seal", "valve", "hose")
IDF = {"pump": 1.0, "seal": 2.5, "valve": 2.5, "hose": 4.0, "clamp": 3.0}


class Impacts:
    """Words of some documents, as an inverted index tells them."""

    is_remote = False

    def __init__(self, documents: list[set[str]]) -> None:
        self.documents = documents

    def __len__(self) -> int:
        return len(self.documents)

    def rows_with(self, word: str) -> NDArray[np.int64]:
        return np.array([row for row, held in enumerate(self.documents) if word in held], np.int64)

    def holds(self, word: str) -> bool:
        return any(word in held for held in self.documents)

    def by_word(self, words: list[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        table = [[float(word in self.documents[row]) for word in words] for row in rows.tolist()]
        return np.array(table, np.float32).reshape(len(rows), len(words))


def expected(
    documents: list[set[str]], words: list[str], known: list[str], match: str, others: Others
) -> set[int]:

    def holds(held: set[str], word: str) -> bool:
        return word in held or any(set(other) <= held for other in others.get(word, ()))

    covered = [{word for word in words if holds(held, word)} for held in documents]
    if match == "any":
        return {row for row, held in enumerate(covered) if held}
    whole = {row for row, held in enumerate(covered) if held == set(words)}
    if whole or match == "all":
        return whole
    needed = SOME * sum(IDF[word] for word in known) - 1e-9
    sums = [sum(IDF[word] for word in held) for held in covered]
    return {row for row, total in enumerate(sums) if total and total >= needed}


@given(
    documents=st.lists(st.sets(st.sampled_from([*WORDS, "clamp", "grip"])), min_size=1, max_size=40),
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True),
    match=st.sampled_from(("auto", "all", "any")),
    others=st.sampled_from(({}, {"hose": (("clamp",), ("grip", "seal"))})),
    kept=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_matches_are_those_of_every_document(
    documents: list[set[str]], words: list[str], match: str, others: Others, kept: list[bool]
) -> None:
    impacts: ImpactsView = Impacts(documents)  # type: ignore[assignment]  # what is asked of it
    asked = WordMatching(words, IDF.__getitem__, match, others)  # type: ignore[arg-type]  # one of the three
    none = np.empty(0, np.float32), np.empty(0, np.int64)
    mask = np.array(kept[: len(documents)])
    rows = np.flatnonzero(mask)
    allowed = [documents[row] for row in rows.tolist()]
    known = [word for word in words if impacts.holds(word) or word in others]
    wanted = {int(rows[place]) for place in expected(allowed, words, known, match, others)}
    every = asked.everywhere(impacts, none, 0.0, RowMask(mask.copy()))
    assert set(every.rows.tolist()) == wanted and every.similar == 0
    pool = asked.among(impacts, rows, none, 0.0, is_whole=True)
    assert set(pool.rows.tolist()) == wanted and pool.words == every.words


@pytest.mark.parametrize(
    ("words", "cosines", "nearest", "similar"),
    [
        (
            ["pump"],
            [0.62, 0.5, 0.36],
            0.65,
            1,
        ),  # keywords that a document holds: nearly as near as the nearest
        (["pump", "wrench"], [0.62, 0.33, 0.31], 0.65, 2),  # not all words: half as near
        (["wrench"], [0.36, 0.34, 0.2], 0.36, 1),  # an unknown keyword: not whatever comes first
        (["a", "pump"], [0.62, 0.5, 0.31], 0.65, 2),  # a phrase of a sentence
        (["what", "is", "a", "wrench", "?"], [0.36, 0.21, 0.19], 0.36, 2),
    ],
)
def test_neighbors_match_if_they_are_near(
    words: list[str], cosines: list[float], nearest: float, similar: int
) -> None:
    impacts: ImpactsView = Impacts([{"pump"}, {"seal"}, {"valve"}, {"hose"}])  # type: ignore[assignment]
    near = np.array(cosines, np.float32), np.array([1, 2, 3])
    asked = WordMatching(words, lambda word: 1.0, "auto", {})
    assert asked.everywhere(impacts, near, nearest, None).similar == similar
