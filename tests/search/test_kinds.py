"""The kind of dense index follows from the size, the memory and the device."""

import pytest

from glow.index.vectors import FLAT_MAX_VECTORS, choose_kind, code_count, list_count


def test_a_small_corpus_is_searched_exactly_and_a_large_one_by_a_graph() -> None:
    assert choose_kind(0, 384) == choose_kind(1, 384) == choose_kind(FLAT_MAX_VECTORS, 384) == "flat"
    assert choose_kind(FLAT_MAX_VECTORS + 1, 384) == "hnsw"


def test_vectors_are_compressed_where_memory_asks_for_it() -> None:
    assert choose_kind(1_000_000, 384, memory_bytes=4 << 30) == "hnsw"
    assert choose_kind(1_000_000, 384, memory_bytes=1 << 30) == "ivf-pq"
    assert choose_kind(10_000_000, 384, memory_bytes=4 << 30) == "ivf-pq"


@pytest.mark.parametrize("count", [0, 1, 63, 64, 1000, 100_000, 10_000_000])
def test_every_list_has_vectors_to_train_on(count: int) -> None:
    lists = list_count(count)
    assert 1 <= lists <= max(4 * count**0.5, 1)
    assert lists == 1 or count / lists >= 64


@pytest.mark.parametrize(("dimensions", "codes"), [(384, 192), (32, 16), (30, 15), (7, 1), (1, 1)])
def test_codes_divide_the_dimensions(dimensions: int, codes: int) -> None:
    assert code_count(dimensions) == codes
