"""Passage rows lead to documents and places in them, and hits of passages fold to hits of documents."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.errors import BuildError, FormatError
from glow.index.passages import ARRAYS, PassageMap, PassagesHeader, TextsOfDocuments, build_passages
from glow.records import Document
from glow.runtime import Model
from glow.text.passages import PassageCutter, PassageOptions

SENTENCE = "Honey bees find their way home by the sun and by the lay of the land. "
COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=12)


def mapped(counts: list[int], order: NDArray[np.uint32] | None = None) -> PassageMap:
    """A map of documents with so many passages each, of ten characters."""
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    documents = np.repeat(np.arange(len(counts)), counts).astype(np.uint32)
    starts = (10 * (np.arange(len(documents)) - first[documents])).astype(np.uint32)
    header = PassagesHeader(field="text", limit=9, documents=len(counts), passages=len(documents), left_out=0)
    return PassageMap(header, documents, starts, starts + np.uint32(10), first, order)


@pytest.fixture
def folder(tmp_path: Path, toy_model: Path) -> Path:
    """A written map: documents of one, several and too many passages, and one without a body."""
    bodies = [SENTENCE, SENTENCE * 40, "", SENTENCE * 400]
    documents = [Document(str(row), {"title": ("bees",), "text": (body,)}) for row, body in enumerate(bodies)]
    cutter = PassageCutter(Model.open(toy_model).preprocessor, PassageOptions(limit=50))
    build_passages(documents, cutter, tmp_path)
    return tmp_path / "passages"


def test_a_map_is_read_as_it_was_written(folder: Path, toy_model: Path) -> None:
    found = PassageMap.open(folder)
    cutter = PassageCutter(Model.open(toy_model).preprocessor, PassageOptions(limit=50))
    bodies = [SENTENCE, SENTENCE * 40, "", SENTENCE * 400]
    documents = [Document(str(row), {"title": ("bees",), "text": (body,)}) for row, body in enumerate(bodies)]
    expected = [passage for document in documents for passage in cutter.passages(document)]
    assert [
        text for row, each in enumerate(documents) for text in TextsOfDocuments(found).of(each, row)
    ] == expected
    counts = [len(cutter.cut(document).spans) for document in documents]
    assert counts[0] == counts[2] == 1 < counts[1] < counts[3] == 50
    assert found.documents.tolist() == np.repeat(np.arange(4), counts).tolist()
    assert found.first.tolist() == [0, *np.cumsum(counts)]
    assert (len(found), found.header.left_out, found.header.field) == (sum(counts), 1, "text")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["passages.json", *(f"{name}.npy" for name in ARRAYS)]
    )
    for row, passage in enumerate(expected):
        place = found.passage_of(documents[found.documents[row]], row)
        assert (place.text, place.field) == (passage.fields["text"][0], "text")
        assert bodies[found.documents[row]][place.start : place.end] == place.text


@pytest.mark.parametrize("name", ["passages.json", *(f"{name}.npy" for name in ARRAYS)])
def test_a_damaged_file_is_refused_by_name(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"garbage" * 99, None):
        (folder / name).unlink()
        if damaged is not None:
            (folder / name).write_bytes(damaged)
        with pytest.raises(FormatError, match=rf"passages/{name}"):
            PassageMap.open(folder)
        (folder / name).write_bytes(whole)
    PassageMap.open(folder)


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_does_not_fit_the_others_is_refused_by_name(folder: Path, name: str) -> None:
    whole = np.load(folder / f"{name}.npy")
    wrong = [whole[:-1], whole.astype(np.int64), whole[::-1].copy(), np.full_like(whole, 7)]
    wrong[3][0] = 2**32 - 1
    for values in wrong[:3] if name in ("starts", "ends") else wrong:
        np.save(folder / f"{name}.npy", values)
        with pytest.raises(FormatError, match=rf"{name}\.npy.*rebuild the index"):
            PassageMap.open(folder)
    np.save(folder / f"{name}.npy", np.array([{"a": 1}] * len(whole)), allow_pickle=True)
    with pytest.raises(FormatError, match=rf"{name}\.npy"):
        PassageMap.open(folder)


@pytest.mark.parametrize(("most", "bodies"), [(3, [SENTENCE * 40]), (len(SENTENCE) - 2, ["", SENTENCE])])
def test_more_than_32_bits_count_is_refused(
    most: int, bodies: list[str], tmp_path: Path, toy_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.index.passages.MAX_ROWS", most)
    documents = [Document(str(row), {"text": (body,)}) for row, body in enumerate(bodies)]
    cutter = PassageCutter(Model.open(toy_model).preprocessor)
    with pytest.raises(BuildError, match=f"document row {len(bodies) - 1}: passages exceed what 32 bits"):
        build_passages(documents, cutter, tmp_path)


@pytest.mark.parametrize("change", [{"format": 2}, {"passages": -1}, {"documents": None}, {"more": 1}])
def test_a_header_of_another_format_is_refused(folder: Path, change: dict[str, object]) -> None:
    header = json.loads((folder / "passages.json").read_bytes())
    (folder / "passages.json").write_text(json.dumps(header | change))
    with pytest.raises(FormatError, match=r"passages\.json is not of format 1"):
        PassageMap.open(folder)


@settings(deadline=None)
@given(counts=COUNTS, data=st.data())
def test_folding_gives_each_document_its_best_passage(counts: list[int], data: st.DataObject) -> None:
    passages = mapped(counts)
    rows = data.draw(st.lists(st.integers(0, len(passages) - 1), unique=True))
    scores = sorted(data.draw(st.lists(st.floats(-1, 1, width=32), min_size=len(rows), max_size=len(rows))))
    missing = data.draw(st.integers(0, 3))
    hits = np.array([*scores[::-1], *[-np.inf] * missing], np.float32)
    found, documents, best = passages.fold(hits, np.array([*rows, *[-1] * missing], np.int64))
    expected: dict[int, tuple[float, int]] = {}
    for row, score in zip(rows, hits.tolist(), strict=False):
        expected.setdefault(int(passages.documents[row]), (score, row))
    assert list(
        zip(documents.tolist(), zip(found.tolist(), best.tolist(), strict=True), strict=True)
    ) == list(expected.items())
    assert (found.dtype, documents.dtype, best.dtype) == (np.float32, np.int64, np.int64)


@settings(deadline=None)
@given(counts=COUNTS, data=st.data())
def test_passages_tie_by_their_document_s_place_and_then_as_in_its_body(
    counts: list[int], data: st.DataObject
) -> None:
    order = np.array(data.draw(st.permutations(range(len(counts)))), np.uint32)
    passages = mapped(counts, order)
    rows = range(len(passages))
    expected = sorted(rows, key=lambda row: (order[passages.documents[row]], row))
    assert passages.order is not None
    assert np.argsort(passages.order).tolist() == expected
    assert sorted(passages.order.tolist()) == list(rows)
    assert mapped(counts).order is None
