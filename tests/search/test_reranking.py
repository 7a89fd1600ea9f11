"""Re-ranking over an index, and the token embeddings that it stores: codes, files, damage (docs/papers.md, row 31)."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.errors import FormatError, MismatchError
from glow.index import Fusion, Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.index.token_embeddings import (
    LEAST,
    STATES_FILES,
    CodedStates,
    StatesHeader,
    TokenEmbeddingStore,
    TokenEmbeddingsWriter,
    code_bytes,
    decode_states,
    encode_states,
)
from glow.search import Reranking, attended_words, rank_hybrid, rank_lexical, rerank, score_unit
from tests.asked import asked_of
from tests.made_index import live

TEXT = "how do bees find the way home by the sun"


@pytest.fixture(scope="module")
def index(rerank_index: Path) -> Index:
    return live(rerank_index)


def alone(index: Index, row: int) -> float:
    """The score of one document, read now and by itself, from states that nobody stored."""
    assert index.reranker is not None
    stored = index.reranker.documents().read([index[STORED_FIELDS].rows([row])[0]])[0][None]
    mask = np.ones(stored.shape[:2], np.int64)
    return float(index.reranker.score(index.reranker.query(TEXT), stored, mask)[0])


def test_every_hit_has_the_score_of_its_own_document(index: Index) -> None:
    ranked, is_whole = rerank(index, TEXT, rank_hybrid(index, asked_of(index, TEXT), 50), Reranking(30))
    assert is_whole
    own = [alone(index, row) for row in ranked.rows[:30].tolist()]
    # Four bits a number: near what they were, and far nearer than documents are to one another.
    np.testing.assert_allclose(ranked.parts["rerank"][:30], own, atol=0.35 * float(np.std(own)))
    assert np.corrcoef(ranked.parts["rerank"][:30], own)[0, 1] > 0.98
    assert np.isnan(ranked.parts["rerank"][30:]).all()


def test_the_score_is_the_first_searchs_and_a_share_of_the_re_rankers(index: Index) -> None:
    first = rank_hybrid(index, asked_of(index, TEXT), 40)
    ranked, _ = rerank(index, TEXT, first, Reranking(20))
    before = dict(zip(first.rows.tolist(), first.scores.tolist(), strict=True))
    own = ranked.parts["rerank"][:20]
    expected = [before[row] + 0.5 * mark for row, mark in zip(ranked.rows[:20].tolist(), own, strict=True)]
    np.testing.assert_allclose(ranked.scores[:20], expected, atol=1e-5)
    assert ranked.rows[:20].tolist() != first.rows[:20].tolist()
    assert sorted(ranked.rows[:20].tolist()) == sorted(first.rows[:20].tolist())


def test_hits_beyond_the_depth_follow_in_order_and_scores_never_rise(index: Index) -> None:
    first = rank_hybrid(index, asked_of(index, TEXT), 50)
    ranked, _ = rerank(index, TEXT, first, Reranking(10))
    assert ranked.rows[10:].tolist() == first.rows[10:].tolist()
    assert (np.diff(ranked.scores) <= 0).all() and ranked.scores[10] < ranked.scores[9]
    for name, values in first.parts.items():
        told = dict(zip(ranked.rows.tolist(), ranked.parts[name].tolist(), strict=True))
        np.testing.assert_array_equal([told[row] for row in first.rows.tolist()], values)


def test_where_time_runs_out_what_was_read_comes_first_and_the_first_page_was_read_first(
    index: Index,
) -> None:
    first = rank_hybrid(index, asked_of(index, TEXT), 50)
    whole, _ = rerank(index, TEXT, first, Reranking(10))
    is_over = iter([False, True]).__next__
    ranked, is_whole = rerank(index, TEXT, first, Reranking(50), is_over=is_over)
    assert not is_whole
    assert ranked.rows.tolist() == whole.rows.tolist()
    none, is_whole = rerank(index, TEXT, first, Reranking(50), is_over=lambda: True)
    assert not is_whole and none.rows.tolist() == first.rows.tolist()
    assert np.isnan(none.parts["rerank"]).all()


def test_points_are_measured_on_the_scale_of_the_first_search(index: Index) -> None:
    assert index.holds(POSTINGS)
    assert score_unit(index, "dense", None) == score_unit(index, "hybrid", None) == 1.0
    assert score_unit(index, "lexical", None) == index[POSTINGS].largest
    assert score_unit(index, "hybrid", Fusion(method="rrf", k=9)) == pytest.approx(0.1)
    ranked, _ = rerank(index, TEXT, rank_lexical(index, TEXT, 20), Reranking(20), unit=2.0)
    own = ranked.parts["rerank"]
    np.testing.assert_allclose(ranked.scores, ranked.parts["lexical"] + 1.0 * own, rtol=1e-5, atol=1e-5)


def test_attention_falls_on_words_of_the_query_and_of_the_hit(index: Index) -> None:
    row = index[STORED_FIELDS].find("toy/0")
    assert row is not None
    (words,) = attended_words(index, TEXT, [row], [None], index[STORED_FIELDS].rows([row]))
    assert {word.word for word in words if word.field == "query"} == set(TEXT.split())
    assert "honey" in {word.word for word in words if word.field == "text"}
    assert words[0].attention == max(word.attention for word in words)
    assert 0.3 < sum(word.attention for word in words) <= 1.0


HEADER = StatesHeader(
    model="a" * 64, split=5, size=7, position_start=32, document_tokens=12, documents=0, tokens=0
)


def write_states(
    folder: Path, header: StatesHeader, documents: Iterable[NDArray[np.float32]]
) -> StatesHeader:
    """Writes a store of documents' states, float32 [L, e] each."""
    with TokenEmbeddingsWriter(folder, header) as writer:
        for states in documents:
            writer.add(CodedStates.of([states]))
        return writer.close()


def documents(count: int = 9, size: int = 7, seed: int = 0) -> list[NDArray[np.float32]]:
    """States as a GELU leaves them, of documents of 1 to 12 tokens."""
    random = np.random.default_rng(seed)
    lengths = [1, 12, *random.integers(1, 13, count - 2).tolist()]
    return [np.maximum(random.normal(0, 2, (length, size)), LEAST).astype(np.float32) for length in lengths]


@given(
    st.lists(st.lists(st.floats(-0.171875, 1e3, width=32), min_size=5, max_size=5), min_size=1, max_size=6)
)
def test_a_number_comes_back_within_half_a_step(rows: list[list[float]]) -> None:
    states = np.maximum(np.array(rows, np.float32), LEAST)
    codes, scales = encode_states(states)
    assert codes.shape == (len(states), code_bytes(5))
    found = decode_states(codes, scales, 5)
    assert (np.abs(found - states) <= 0.5 * scales[:, None].astype(np.float32) * 1.001 + 1e-6).all()


def test_codes_have_the_values_worked_out_by_hand() -> None:
    codes, scales = encode_states(np.array([[-0.17, 14.83, 7.33]], np.float32))
    assert scales[0] == pytest.approx(1.0, abs=2e-3)
    # Two codes a byte, the first in the low half; 7.5 steps round to 7.
    assert codes.tolist() == [[0 | 15 << 4, 7]]
    assert code_bytes(64) + 2 == 34


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.2, 1e6])
def test_numbers_that_no_gelu_makes_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"must be (finite and fit into 16 bits|at least -0\.17)"):
        encode_states(np.array([[0.0, value]], np.float32))


def test_a_store_gives_back_every_document(tmp_path: Path) -> None:
    made = documents()
    header = write_states(tmp_path / "states", HEADER, iter(made))
    assert (header.documents, header.tokens) == (9, sum(map(len, made)))
    store = TokenEmbeddingStore.open(tmp_path / "states", documents=9)
    assert len(store) == 9
    rows = np.array([3, 1, 0, 3])
    states, mask = store.read(rows)
    assert states.shape == (4, max(len(made[row]) for row in rows), 7)
    for place, row in enumerate(rows):
        length = len(made[row])
        assert mask[place].tolist() == [1] * length + [0] * (states.shape[1] - length)
        np.testing.assert_allclose(states[place, :length], decode_states(*encode_states(made[row]), 7))
        assert not states[place, length:].any()
    assert {path.name for path in (tmp_path / "states").iterdir()} == set(STATES_FILES)


@pytest.mark.parametrize("shape", [(0, 7), (13, 7)])
def test_documents_of_too_few_or_many_tokens_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="documents of"):
        write_states(tmp_path / "states", HEADER, iter([documents()[0], np.zeros(shape, np.float32)]))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_states(tmp_path / "states", HEADER, iter(documents()))
    return tmp_path / "states"


def test_offsets_that_cut_otherwise_are_named(store: Path) -> None:
    offsets = np.load(store / "offsets.npy")
    for place, value in ((0, 1), (3, offsets[2]), (4, 10_000), (-1, offsets[-1] + 1)):
        changed = offsets.copy()
        changed[place] = value
        np.save(store / "offsets.npy", changed)
        with pytest.raises(FormatError, match=r"offsets\.npy is damaged"):
            TokenEmbeddingStore.open(store)


def test_lengths_and_scales_that_cannot_be_are_named(store: Path) -> None:
    header = StatesHeader.load(store / "states.json")
    header.model_copy(update={"document_tokens": 11}).save(store / "states.json")
    with pytest.raises(FormatError, match=r"offsets\.npy is damaged"):
        TokenEmbeddingStore.open(store)
    header.save(store / "states.json")
    scales = np.load(store / "scales.npy")
    scales[2] = np.nan
    np.save(store / "scales.npy", scales)
    with pytest.raises(FormatError, match=r"scales\.npy is damaged"):
        TokenEmbeddingStore.open(store)


def test_a_store_of_another_re_ranker_is_refused(store: Path) -> None:
    opened = TokenEmbeddingStore.open(store)
    opened.require_model("a" * 64)
    with pytest.raises(MismatchError, match="aaaaaaaaaaaa, found bbbbbbbbbbbb"):
        opened.require_model("b" * 64)
