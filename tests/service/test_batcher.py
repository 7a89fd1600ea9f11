"""The batcher: alone when idle, together under load, and never at the cost of a mate, also with the default model."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

import glow_service.search.pool
from glow.artifact import default_model
from glow.collection import read_documents, read_queries
from glow.runtime import Encoder, Model
from glow.text import WeightedTokens
from glow_service.search.clock import NEVER
from glow_service.search.pool import CLASS_TOKENS, Batcher, SearchPool
from glow_service.telemetry.metrics import Metrics
from tests.service.asking import samples

WORDS = "bees find the way home by the sun and salmon swim up the river to lay their eggs".split()


class Recording(Encoder):
    """A real tower that notes the batches it was given, and waits at a gate where it has one."""

    def __init__(self, path: Path, pad_id: int) -> None:
        super().__init__(path, pad_id)
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def run(self, sequences: Any) -> Any:
        self.batches.append([len(sequence) for sequence in sequences])
        assert self.gate.wait(10)
        return super().run(sequences)


@pytest.fixture(scope="module")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)


@pytest.fixture
def tower(toy_model: Path, model: Model) -> Recording:
    return Recording(toy_model / "query.onnx", model.preprocessor.pieces.pad_id)


@pytest.fixture
def pool() -> Iterator[SearchPool]:
    pool = SearchPool(Metrics(), 1, 100)
    yield pool
    pool.close()


def test_a_search_multiplies_in_as_many_threads_as_it_encodes() -> None:
    """Threads of a product wait actively: with all cores, a hybrid search takes three times the CPU time."""
    numpy = ThreadpoolController().select(prefix="libscipy_openblas").lib_controllers
    if not numpy:
        pytest.skip("NumPy's library here is another one")
    rows = np.ones((2_000, 500), np.float32)
    assert (rows @ rows.T).all()
    SearchPool(Metrics(), 2, 100).close()
    assert [library.num_threads for library in numpy] == [1] * len(numpy)


def encoded(batcher: Batcher, tower: Encoder, tokens: WeightedTokens) -> Coroutine[Any, Any, Any]:
    return batcher.run(tower, tokens, lambda _, vector: vector, NEVER)


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), 60))


def tokens_of(model: Model, words: int) -> WeightedTokens:
    return model.preprocessor.query(" ".join((WORDS * 4)[:words]))


async def when(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_queries_that_wait_go_together_by_length_within_the_budget(
    model: Model, tower: Recording, pool: SearchPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = tokens_of(model, 2), tokens_of(model, 20)
    assert (len(short) - 1) // CLASS_TOKENS != (len(long) - 1) // CLASS_TOKENS
    monkeypatch.setattr(glow_service.search.pool, "BATCH_TOKENS", 4 * len(short))
    metrics = Metrics()

    async def work() -> None:
        batcher = Batcher(pool, metrics)
        tower.gate.clear()
        first = asyncio.ensure_future(encoded(batcher, tower, short))
        await when(lambda: len(tower.batches) == 1)
        texts = [long, short, short, long, short, short, short]
        rest = [asyncio.ensure_future(encoded(batcher, tower, tokens)) for tokens in texts]
        await when(lambda: batcher.waiting == 7)
        tower.gate.set()
        await asyncio.gather(first, *rest)
        assert batcher.waiting == 0

    run(work)
    # After the first: the class of the one that waited longest, one at a time where two exceed the budget.
    assert tower.batches == [[len(short)], [len(long)], [len(short)] * 4, [len(long)], [len(short)]]
    counted = samples(metrics.text())
    assert (counted["glow_batch_queries_count"], counted["glow_batch_queries_sum"]) == (5, 8)
    assert counted["glow_batch_padding_ratio_sum"] == 0


@settings(max_examples=15, deadline=None)
@given(words=st.lists(st.integers(1, 40), min_size=1, max_size=24))
def test_everyone_gets_the_vector_of_their_own_text(model: Model, words: list[int]) -> None:
    tower, pool = model.encoder("query"), SearchPool(Metrics(), 2, 100)
    sequences = [tokens_of(model, count) for count in words]
    alone = [tower.run([sequence])[0] for sequence in sequences]

    async def work() -> list[Any]:
        batcher = Batcher(pool, Metrics())
        return await asyncio.gather(*(encoded(batcher, tower, sequence) for sequence in sequences))

    try:
        found = run(work)
    finally:
        pool.close()
    np.testing.assert_allclose(np.array(found), np.array(alone), atol=1e-5)


def test_what_goes_wrong_while_encoding_is_told_to_all_and_the_next_batch_runs(
    model: Model, tower: Recording, pool: SearchPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_of(model, 3)

    async def work() -> None:
        batcher = Batcher(pool, Metrics())
        with monkeypatch.context() as patch:
            patch.setattr(tower, "run", lambda _: 1 / 0)
            calls = [encoded(batcher, tower, tokens) for _ in range(3)]
            found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in found] == [ZeroDivisionError] * 3
        assert (await encoded(batcher, tower, tokens)).shape == (tower.dimensions,)

    run(work)


QUERIES, DOCUMENTS, TOP = 200, 100, 10


def test_a_vector_of_the_default_model_is_the_same_alone_and_in_any_batch(
    shared_data: Path, pool: SearchPool
) -> None:
    model = Model.open(default_model(Path(__file__).parents[2] / "models"))
    preprocessor, tower, metrics = model.preprocessor, model.encoder("query"), Metrics()
    queries = islice(read_queries(shared_data / "tldr" / "queries.jsonl"), QUERIES)
    sequences = [preprocessor.query(query.text) for query in queries]
    corpus = read_documents(shared_data / "tldr" / "corpus.jsonl", preprocessor.schema.names)
    documents = [preprocessor.document(document) for document in islice(corpus, DOCUMENTS)]
    indexed = model.encoder("document").encode(documents)
    alone = np.stack([tower.run([sequence])[0] for sequence in sequences])

    async def work() -> Any:
        batcher = Batcher(pool, metrics)
        return np.stack(await asyncio.gather(*(encoded(batcher, tower, each) for each in sequences)))

    together = run(work)
    assert len(together) == QUERIES > 8 * samples(metrics.text())["glow_batch_queries_count"]
    assert (alone * together).sum(1).min() >= 0.999 and np.abs(alone - together).max() <= 1e-5
    tops = [np.argsort(-(vectors @ indexed.T), 1, kind="stable")[:, :TOP] for vectors in (alone, together)]
    assert (tops[0] == tops[1]).all(1).mean() >= 0.99
