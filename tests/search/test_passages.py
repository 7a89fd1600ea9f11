"""Passage rows lead to documents and places in them, and hits of passages fold to hits of documents."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.errors import BuildError, FormatError
from glow.index import RowMask
from glow.index.passages import ARRAYS, PassageMap, PassagesHeader, TextsOfDocuments, build_passages
from glow.index.vectors import GPU_MAX_HITS, DenseIndex, SearchParams, build_dense
from glow.records import Document
from glow.runtime import Model
from glow.search import search_documents
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


BODIES = [SENTENCE, SENTENCE * 40, "", SENTENCE * 400]
"""Of one, several and too many passages, and none."""
DOCUMENTS = [Document(str(row), {"title": ("bees",), "text": (body,)}) for row, body in enumerate(BODIES)]


@pytest.fixture(scope="module")
def cutter(toy_model: Path) -> PassageCutter:
    return PassageCutter(Model.open(toy_model).preprocessor, PassageOptions(limit=50))


@pytest.fixture
def folder(tmp_path: Path, cutter: PassageCutter) -> Path:
    build_passages(DOCUMENTS, cutter, tmp_path)
    return tmp_path / "passages"


def test_a_map_is_read_as_it_was_written(folder: Path, cutter: PassageCutter) -> None:
    found = PassageMap.open(folder)
    expected = [passage for document in DOCUMENTS for passage in cutter.passages(document)]
    whole = TextsOfDocuments(found)
    assert [text for row, each in enumerate(DOCUMENTS) for text in whole.of(each, row)] == expected
    counts = [len(cutter.cut(document).spans) for document in DOCUMENTS]
    assert counts[0] == counts[2] == 1 < counts[1] < counts[3] == 50
    assert found.documents.tolist() == np.repeat(np.arange(4), counts).tolist()
    assert found.first.tolist() == [0, *np.cumsum(counts)]
    assert (len(found), found.header.left_out, found.header.field) == (sum(counts), 1, "text")
    names = {"passages.json", *(f"{name}.npy" for name in ARRAYS)}
    assert {path.name for path in folder.iterdir()} == names
    for row, passage in enumerate(expected):
        place = found.passage_of(DOCUMENTS[found.documents[row]], row)
        assert (place.text, place.field) == (passage.fields["text"][0], "text")
        assert BODIES[found.documents[row]][place.start : place.end] == place.text


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_does_not_fit_the_others_is_refused_by_name(folder: Path, name: str) -> None:
    whole = np.load(folder / f"{name}.npy")
    wrong = [whole[::-1].copy()]
    if name not in ("starts", "ends"):
        wrong.append(np.full_like(whole, 7))
        wrong[1][0] = 2**32 - 1
    for values in wrong:
        np.save(folder / f"{name}.npy", values)
        with pytest.raises(FormatError, match=rf"{name}\.npy.*rebuild the index"):
            PassageMap.open(folder)


@pytest.mark.parametrize(("most", "bodies"), [(3, [SENTENCE * 40]), (len(SENTENCE) - 2, ["", SENTENCE])])
def test_more_than_32_bits_count_is_refused(
    most: int, bodies: list[str], tmp_path: Path, cutter: PassageCutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.index.passages.MAX_ROWS", most)
    documents = [Document(str(row), {"text": (body,)}) for row, body in enumerate(bodies)]
    with pytest.raises(BuildError, match=f"document row {len(bodies) - 1}: passages exceed what 32 bits"):
        build_passages(documents, cutter, tmp_path)


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


@given(counts=COUNTS, data=st.data())
def test_passages_tie_by_document_and_then_as_in_its_body(counts: list[int], data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(counts)))), np.uint32)
    passages = mapped(counts, order)
    rows = range(len(passages))
    expected = sorted(rows, key=lambda row: (order[passages.documents[row]], row))
    assert passages.order is not None
    assert np.argsort(passages.order).tolist() == expected
    assert sorted(passages.order.tolist()) == list(rows)
    assert mapped(counts).order is None


Vectors = NDArray[np.float32]


def naive(
    vectors: Vectors,
    query: Vectors,
    passages: PassageMap,
    allowed: NDArray[np.bool_],
    order: NDArray[np.uint32],
) -> list[tuple[int, int]]:
    """Every allowed document with its best passage: by score, then by order, then by row."""
    scores = vectors @ query
    best: dict[int, int] = {}
    for row in sorted(range(len(passages)), key=lambda row: (-scores[row], row)):
        best.setdefault(int(passages.documents[row]), row)
    ranked = sorted(best.items(), key=lambda item: (-scores[item[1]], order[item[0]]))
    return [(document, row) for document, row in ranked if allowed[document]]


@given(counts=COUNTS, data=st.data())
def test_a_search_finds_the_documents_of_the_best_passages(counts: list[int], data: st.DataObject) -> None:
    """Vectors of whole numbers tie often, and their products have no rounding."""
    order = np.array(data.draw(st.permutations(range(len(counts)))), np.uint32)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts))))
    passages = mapped(counts, order)
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    vectors = generator.integers(-1, 2, (len(passages), 3)).astype(np.float32)
    queries = generator.integers(-1, 2, (3, 3)).astype(np.float32)
    dense = build_dense(vectors, "flat")
    every = np.ones(len(counts), bool)
    for mask in (None, allowed):
        open_rows = every if mask is None else mask
        expected = [naive(vectors, query, passages, open_rows, order) for query in queries]
        for k in (1, 2, 5, 50):
            rows = None if mask is None else RowMask(mask.copy())
            found = search_documents(dense, passages, queries, k, SearchParams(exact=True), rows)
            for (scores, documents, best), wanted, query in zip(found, expected, queries, strict=True):
                assert list(zip(documents.tolist(), best.tolist(), strict=True)) == wanted[:k]
                np.testing.assert_array_equal(scores, vectors[best] @ query)


@pytest.mark.parametrize("k", [400, 700, 1_000])
def test_a_gpu_is_never_asked_for_more_than_it_can_find(k: int) -> None:
    """1,500 documents with three passages each; only one document's are near, so that the search looks further."""

    class OnGpu:
        device = "cuda"
        asked: ClassVar[list[int]] = []

        def search(
            self, vectors: Vectors, k: int, *_: object, **__: object
        ) -> tuple[Vectors, NDArray[np.int64]]:
            self.asked.append(k)
            return np.ones((len(vectors), k), np.float32), np.tile(np.arange(k) % 3, (len(vectors), 1))

    dense = OnGpu()
    ((_, documents, _),) = search_documents(dense, mapped([3] * 1_500), np.ones((1, 2), np.float32), k)  # type: ignore[arg-type]
    assert documents.tolist() == [0]
    assert max(dense.asked) == GPU_MAX_HITS


def test_one_document_of_many_near_passages_does_not_hide_the_others() -> None:
    """A document holds the hundred best passages: the search looks further until ten documents are found."""
    counts = [100, *[1] * 40]
    vectors = np.zeros((140, 2), np.float32)
    vectors[:, 0] = np.linspace(1, 0.1, 140)
    vectors[:, 1] = np.sqrt(1 - vectors[:, 0] ** 2)
    query = np.array([[1, 0]], np.float32)
    ((_, documents, best),) = search_documents(build_dense(vectors, "flat"), mapped(counts), query, 10)
    assert documents.tolist() == [*range(10)]
    assert best.tolist() == [0, *range(100, 109)]
    ((_, documents, _),) = search_documents(build_dense(vectors, "hnsw"), mapped(counts), query, 10)
    assert len(set(documents.tolist())) == 10 and documents[0] == 0


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_query_finds_the_same_among_others_as_alone(kind: str, vectors: Vectors, queries: Vectors) -> None:
    dense: DenseIndex = build_dense(vectors, kind)  # type: ignore[arg-type]
    passages = mapped([*[3] * 500, *[1] * 1400, 100])
    for query, expected in zip(queries, search_documents(dense, passages, queries, 20), strict=True):
        (alone,) = search_documents(dense, passages, query[None], 20)
        for ours, theirs in zip(alone, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_an_approximate_search_that_meets_too_few_gives_those(vectors: Vectors, queries: Vectors) -> None:
    dense = build_dense(vectors, "ivf-pq")
    found = search_documents(dense, mapped([2] * 1500), queries, 1500, SearchParams(nprobe=1))
    for scores, documents, best in found:
        assert 0 < len(documents) == len(scores) == len(best) < 1500
        assert (documents == best // 2).all()
