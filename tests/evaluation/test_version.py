"""Versions are asked as a service asks them."""

from pathlib import Path

import numpy as np
import pytest

from glow.evaluation.version import VersionSearch
from glow.index import Index
from glow.index.vectors import VECTORS, SearchParams, build_dense
from glow.search import DEFAULT_CANDIDATES
from glow_service.search.plan import SearchPlan
from glow_service.search.run import SearchSession
from tests.made_index import live

TEXTS = ["what about bees", "ants", "", "🐝", "water for rice", "the moon pulls tides"]


@pytest.fixture(scope="module")
def index(toy_index: Path) -> Index:
    return live(toy_index)


def test_hits_are_those_of_the_service(index: Index) -> None:
    search = VersionSearch(index, TEXTS)
    assert search.retrievers == ("dense", "hybrid")
    found = {retriever: search.ids(retriever) for retriever in search.retrievers}
    for place, text in enumerate(TEXTS):
        if not index.preprocessor.query(text).words:
            assert found["dense"][place] == found["hybrid"][place] == ()
            continue
        for retriever in search.retrievers:
            call = SearchPlan(text, 10, 0, DEFAULT_CANDIDATES, SearchParams(), retriever, match="any")
            ids = tuple(hit.id for hit in SearchSession(index, call).run().found.hits)
            assert (retriever, found[retriever][place]) == (retriever, ids)


def test_recall_is_the_share_of_what_comparing_with_all_finds(index: Index) -> None:
    """Of an index that looks into 64 of several hundred lists, over vectors without any order to go by."""
    assert VersionSearch(index, TEXTS).recall() == 1.0
    assert VersionSearch(index, ["", " "]).recall() is None
    vectors = np.random.default_rng(0).standard_normal((20_000, index[VECTORS].dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rough = build_dense(vectors, "ivf-pq")
    recall = VersionSearch(index.with_reader(VECTORS, rough), TEXTS).recall()
    asked = [index.preprocessor.query(text) for text in TEXTS]
    queries = index.encoder.encode([tokens for tokens in asked if tokens.words])
    best = rough.search(queries, 10, SearchParams(exact=True))[1]  # by the stored vectors, in 8 bits
    found = rough.search(queries, 10)[1]
    pairs = zip(best.tolist(), found.tolist(), strict=True)
    shares = [len(set(one) & set(other)) / 10 for one, other in pairs]
    assert recall == pytest.approx(float(np.mean(shares)))
    assert recall < 1.0
