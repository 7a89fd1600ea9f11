"""Term representations: codes, and the store's files, damage and mismatch (docs/papers.md, row 31)."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from glow.errors import FormatError, MismatchError
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


def test_a_store_of_no_document_can_be_opened(tmp_path: Path) -> None:
    write_states(tmp_path / "states", HEADER, iter([]))
    assert len(TokenEmbeddingStore.open(tmp_path / "states")) == 0


@pytest.mark.parametrize("shape", [(0, 7), (13, 7)])
def test_documents_of_too_few_or_many_tokens_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="documents of"):
        write_states(tmp_path / "states", HEADER, iter([documents()[0], np.zeros(shape, np.float32)]))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_states(tmp_path / "states", HEADER, iter(documents()))
    return tmp_path / "states"


@pytest.mark.parametrize("name", STATES_FILES)
def test_a_file_that_is_missing_or_cut_off_is_named(store: Path, name: str) -> None:
    whole = (store / name).read_bytes()
    for left in (None, whole[:-2], whole[: len(whole) // 2], b""):
        (store / name).unlink(missing_ok=True)
        if left is not None:
            (store / name).write_bytes(left)
        with pytest.raises(FormatError, match=name):
            TokenEmbeddingStore.open(store)
    (store / name).write_bytes(whole)
    TokenEmbeddingStore.open(store)


def test_offsets_that_cut_otherwise_are_named(store: Path) -> None:
    offsets = np.load(store / "offsets.npy")
    for place, value in ((0, 1), (3, offsets[2]), (4, 10_000), (-1, offsets[-1] + 1)):
        changed = offsets.copy()
        changed[place] = value
        np.save(store / "offsets.npy", changed)
        with pytest.raises(FormatError, match=r"offsets\.npy is damaged"):
            TokenEmbeddingStore.open(store)


def test_a_document_longer_than_the_header_allows_is_named(store: Path) -> None:
    header = StatesHeader.load(store / "states.json")
    header.model_copy(update={"document_tokens": 11}).save(store / "states.json")
    with pytest.raises(FormatError, match=r"offsets\.npy is damaged"):
        TokenEmbeddingStore.open(store)


def test_scales_that_are_no_numbers_are_named(store: Path) -> None:
    scales = np.load(store / "scales.npy")
    scales[2] = np.nan
    np.save(store / "scales.npy", scales)
    with pytest.raises(FormatError, match=r"scales\.npy is damaged"):
        TokenEmbeddingStore.open(store)


def test_a_store_of_another_index_or_re_ranker_is_refused(store: Path) -> None:
    with pytest.raises(FormatError, match="counts 9 documents, the index has 10"):
        TokenEmbeddingStore.open(store, documents=10)
    opened = TokenEmbeddingStore.open(store)
    opened.require_model("a" * 64)
    with pytest.raises(MismatchError, match="aaaaaaaaaaaa, found bbbbbbbbbbbb"):
        opened.require_model("b" * 64)
