"""What ranks does not depend on how candidates were cut into shards: properties of merging and of what travels."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import FormatError
from glow.search import (
    Fusion,
    FusionWeights,
    MergedCandidates,
    ShardCandidates,
    expression_from_json,
    expression_to_json,
    fields_in,
    merge_candidates,
    parse_filter,
    shard_of,
)
from glow.search.columns import columns_in_memory
from glow_service.shards.wire import Found, found_from_json, found_to_json

K = 12


def cut(
    dense: list[float], lexical: list[float], shards: list[int]
) -> dict[int, tuple[list[str], ShardCandidates]]:
    """Documents whose scores are known, as the shards to which they fall would send their K best of each part."""
    found = {}
    for shard in sorted(set(shards)):
        rows = np.array([row for row, each in enumerate(shards) if each == shard], np.int64)
        scores = {"dense": np.array(dense, np.float32)[rows], "lexical": np.array(lexical, np.float32)[rows]}
        best = {name: np.lexsort((rows, -values))[:K] for name, values in scores.items()}
        best["lexical"] = best["lexical"][scores["lexical"][best["lexical"]] > 0]
        places = np.union1d(best["dense"], best["lexical"])
        found[shard] = (
            [f"d{row:04d}" for row in rows[places].tolist()],
            ShardCandidates(
                rows[places],
                scores["dense"][places],
                scores["lexical"][places],
                np.full(len(places), -1, np.int64),
                np.searchsorted(places, best["dense"]).astype(np.int64),
                np.searchsorted(places, best["lexical"]).astype(np.int64),
            ),
        )
    return found


def shown(merged: MergedCandidates) -> list[tuple[str, float]]:
    ranked = merged.ranked
    return [(merged.ids[row], float(score)) for row, score in zip(ranked.rows, ranked.scores, strict=True)]


# Few different values, so that ties are common.
SCORES = st.lists(st.integers(-4, 8).map(lambda value: value / 8), min_size=1, max_size=60)


@given(dense=SCORES, data=st.data(), method=st.sampled_from(["convex", "rrf"]))
def test_any_cut_ranks_as_one_piece(dense: list[float], data: st.DataObject, method: Any) -> None:
    count = len(dense)
    lexical = data.draw(st.lists(st.integers(0, 6).map(float), min_size=count, max_size=count))
    shards = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    fusion = Fusion(method=method, weights=FusionWeights(dense=0.4, lexical=0.6))
    for retriever in ("dense", "lexical", "hybrid"):
        whole = merge_candidates(cut(dense, lexical, [0] * count), K, retriever, fusion, 6.0)
        parts = merge_candidates(cut(dense, lexical, shards), K, retriever, fusion, 6.0)
        assert shown(parts) == shown(whole)
        for row in parts.ranked.rows.tolist():
            number = int(parts.ids[row][1:])
            assert (int(parts.rows[row]), int(parts.shards[row])) == (number, shards[number])


def test_a_shard_without_candidates_takes_no_part() -> None:
    nothing = np.empty(0, np.int64)
    empty = ShardCandidates(
        nothing, np.empty(0, np.float32), np.empty(0, np.float32), nothing, nothing, nothing
    )
    found = {**cut([0.5, 0.25], [1.0, 0.0], [0, 0]), 3: ([], empty)}
    assert [name for name, _ in shown(merge_candidates(found, K, "hybrid", Fusion(), 1.0))] == [
        "d0000",
        "d0001",
    ]
    assert shown(merge_candidates({3: ([], empty)}, K, "hybrid", Fusion(), 1.0)) == []


def test_documents_fall_evenly_and_always_alike() -> None:
    counts = np.bincount([shard_of(f"doc/{number}", 8) for number in range(8_000)], minlength=8)
    assert counts.min() > 850 and counts.max() < 1_150
    assert [shard_of(name, 4) for name in ("toy/0", "ünï", "")] == [0, 3, 0]  # for ever: indexes lie on disks


def test_candidates_travel() -> None:
    candidates = cut([0.5, -0.25, 0.125], [1.0, 0.0, 2.0], [0, 0, 0])[0][1]
    unknown = ShardCandidates(
        candidates.rows,
        np.array([0.5, np.nan, 0.125], np.float32),
        candidates.lexical,
        candidates.passages,
        candidates.found_dense,
        candidates.found_lexical,
    )
    sent = Found(ids=["a", "b", "ünï"], candidates=unknown, metadata=[], matching=2)
    got = found_from_json(found_to_json(sent))
    assert (got.ids, got.matching) == (["a", "b", "ünï"], 2)
    for name in ("rows", "dense", "lexical", "passages", "found_dense", "found_lexical"):
        np.testing.assert_array_equal(getattr(got.candidates, name), getattr(unknown, name))


@pytest.mark.parametrize(
    "change",
    [
        {"ids": ["a"]},
        {"rows": "x"},
        {"found_dense": [7]},
        {"found_lexical": [-1]},
        {"dense": None},
        {"metadata": [{}]},
    ],
)
def test_what_is_no_answer_is_refused(change: dict[str, Any]) -> None:
    candidates = cut([0.5, 0.25], [1.0, 0.0], [0, 0])[0][1]
    sent = found_to_json(Found(ids=["a", "b"], candidates=candidates, metadata=[], matching=2))
    with pytest.raises(FormatError, match="not a response of a shard"):
        found_from_json(orjson.dumps({**orjson.loads(sent), **change}))


FIELDS = {"lang": ["string"], "year": ["number"], "day": ["date", "string"], "open": ["boolean"]}
FILTERS = (
    {"field": "lang", "eq": "en"},
    {"and": [{"field": "year", "gte": 2005}, {"not": {"field": "open", "exists": True}}]},
    {"or": [{"field": "day", "lt": "2024-05-01"}, {"field": "lang", "in": ["a", "b", "c"]}]},
    {"field": "year", "in": [1, 2.5, -(2**60)]},
    {"field": "lang", "in": []},
)


@pytest.mark.parametrize("value", FILTERS)
def test_filters_travel(value: dict[str, Any]) -> None:
    expression = parse_filter(value, columns_in_memory([], FIELDS), 100)  # type: ignore[arg-type]
    assert expression_from_json(orjson.loads(orjson.dumps(expression_to_json(expression)))) == expression
    assert fields_in(expression) <= FIELDS.keys()


@pytest.mark.parametrize(
    "value",
    [
        [],
        ["like", "x"],
        ["exists"],
        ["exists", 3],
        ["one_of", "f", "text", []],
        ["one_of", "f", "number", [[]]],
        7,
        ["and", 3],
    ],
)
def test_what_is_no_filter_is_refused(value: Any) -> None:
    with pytest.raises(FormatError, match="not a filter"):
        expression_from_json(value)
    deep: list[Any] = ["exists", "f"]
    for _ in range(100):
        deep = ["not", deep]
    with pytest.raises(FormatError, match="nested too deep"):
        expression_from_json(deep)
