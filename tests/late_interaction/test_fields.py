"""Which tokens are of which field, told by the places that are stored; and what answers a query in a part of a row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.index.late_interaction import best_in, best_tokens, stored_tokens, tokens_of_field
from glow.records import Document
from glow.text import Preprocessor, load_preprocessor
from tests.late_interaction.test_scoring import some

VALUE = st.text("ab .-é東", max_size=40)


@pytest.fixture(scope="module")
def preprocessor(toy_model: str) -> Preprocessor:
    return load_preprocessor(toy_model)


@given(values=st.lists(VALUE, min_size=5, max_size=5), long=st.sampled_from([-1, 0, 4]))
def test_every_field_has_the_tokens_that_the_preprocessor_gave_it(
    preprocessor: Preprocessor, values: list[str], long: int
) -> None:
    """Empty fields, and such as lose words to their budget, among them."""
    if long >= 0:
        values[long] = "no end of words. " * 60
    names = preprocessor.schema.names
    fields = {name: (value,) for name, value in zip(names, values, strict=True) if value}
    sequence = preprocessor.document(Document("d", fields))
    places = stored_tokens(sequence)
    for number in range(len(names)):
        expected = np.flatnonzero((sequence.field_ids[places] == number) & (sequence.word_ids[places] >= 0))
        own = tokens_of_field(places.astype(np.uint16), number)
        assert np.arange(len(places))[own].tolist() == expected.tolist()


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_parts_are_answered_as_each_alone(lengths: list[int], seed: int) -> None:
    codes, tokens, _ = some(lengths, seed=seed)
    bounds = [*zip(lengths, np.cumsum(lengths).tolist(), strict=True)]
    parts = [slice(end - length, end - length // 2) for length, end in bounds]
    found = best_in(codes, parts, tokens)
    for number, part in enumerate(parts):
        own = codes[part]
        alone = best_tokens(own, np.arange(len(own), dtype=np.uint16), tokens)
        assert found.places[number].tolist() == alone.places.tolist()
        assert found.similarities[number].tobytes() == alone.similarities.tobytes()


def test_no_part_has_no_answers() -> None:
    codes, tokens, _ = some([3])
    assert best_in(codes, [], tokens).places.shape == (0, 5)
    assert best_in(codes, [slice(0, 2)], tokens[:0]).similarities.shape == (1, 0)
