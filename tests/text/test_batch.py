"""Batches: every sequence once, within the budget, padded with what the mask hides."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.records import Document
from glow.text import Preprocessor
from glow.text.preprocessor import batches_by_length, pad


@given(st.lists(st.integers(1, 60), max_size=50), st.integers(1, 200))
def test_every_position_comes_once_and_budgets_are_kept(lengths: list[int], max_tokens: int) -> None:
    batches = list(batches_by_length(lengths, max_tokens))
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch
        assert len(batch) == 1 or len(batch) * max(lengths[position] for position in batch) <= max_tokens


@given(st.lists(st.integers(1, 60), min_size=1, max_size=50))
def test_batches_hold_neighbours_in_length_longest_first(lengths: list[int]) -> None:
    order = [lengths[position] for batch in batches_by_length(lengths, 100) for position in batch]
    assert order == sorted(lengths, reverse=True)


def test_batches_are_filled() -> None:
    assert [len(batch) for batch in batches_by_length([10] * 25, 100)] == [10, 10, 5]


def test_padding_is_masked_and_weighs_1(make: Callable[..., Preprocessor]) -> None:
    preprocessor = make("bison-msmarco", counts={"bee": 3})
    short, long = preprocessor.query("bee"), preprocessor.query("what is the home")
    batch = pad([short, long], pad_id=0)
    assert batch.ids.shape == batch.mask.shape == batch.field_ids.shape == batch.weights.shape == (2, 6)
    assert [array.dtype for array in (batch.ids, batch.mask, batch.field_ids)] == [np.int64] * 3
    assert batch.weights.dtype == np.float32
    assert batch.mask.sum(axis=1).tolist() == [3, 6]
    for row, tokens in enumerate((short, long)):
        end = len(tokens)
        assert (batch.ids[row, :end] == tokens.ids).all()
        assert (batch.weights[row, :end] == tokens.weights).all()
        assert (batch.ids[row, end:] == 0).all()
        assert (batch.weights[row, end:] == 1).all()
        assert not batch.mask[row, end:].any()


def test_padding_takes_the_models_pad_id(make: Callable[..., Preprocessor]) -> None:
    preprocessor = make()
    batch = pad([preprocessor.query("a b"), preprocessor.query("")], pad_id=7)
    assert batch.ids[1, 2:].tolist() == [7, 7]


def test_field_ids_travel_with_their_tokens(make: Callable[..., Preprocessor]) -> None:
    tokens = make("bison-msmarco").document(Document("d", {"title": ("bee",)}))
    assert pad([tokens], 0).field_ids.tolist() == [[0, 0, 1, 1]]


def test_no_sequence_is_no_batch() -> None:
    assert list(batches_by_length([], 10)) == []
    with pytest.raises(ValueError, match="empty"):
        pad([], 0)
