"""The same texts give the same sample, in whatever order and however often they come."""

import random

from hypothesis import given
from hypothesis import strategies as st

from glow.evaluation.version import sample_texts

TEXTS = st.lists(st.text(max_size=3), max_size=40)


@given(TEXTS, st.integers(1, 10), st.randoms(use_true_random=False))
def test_a_sample_depends_on_the_texts_alone(texts: list[str], count: int, chance: random.Random) -> None:
    sample = sample_texts(texts, count)
    different = {text for text in texts if text.strip()}
    assert set(sample) <= different and len(sample) == min(count, len(different)) == len(set(sample))
    shuffled = texts * 2
    chance.shuffle(shuffled)
    assert sample_texts(shuffled, count) == sample


@given(TEXTS, st.integers(1, 10))
def test_a_larger_sample_holds_the_smaller_one(texts: list[str], count: int) -> None:
    assert sample_texts(texts, count + 3)[:count] == sample_texts(texts, count)


def test_another_seed_gives_another_sample() -> None:
    texts = [str(number) for number in range(1000)]
    assert sample_texts(texts, 10) != sample_texts(texts, 10, seed=1)
