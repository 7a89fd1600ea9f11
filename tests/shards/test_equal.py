"""A set answers as one index of the same documents does: same hits, scores, facets, snippets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.artifact import IndexRoot
from glow.errors import DocumentNotFoundError, FilterError, MismatchError
from glow_service.errors import NotAvailableError
from glow_service.search import check_search
from glow_service.settings import Settings
from glow_service.shards import open_session, open_version
from tests.shards.conftest import answer, made, opened

QUERIES = (
    "how do bees find home",
    "coffee in the shade",
    "steam engines",
    "a note on foxes and number 7",
    "zzz",
    "tee in gardns",
)
PLAIN: tuple[dict[str, Any], ...] = tuple(
    {"query": query, "retriever": retriever, "top_k": top_k, "offset": offset}
    for query in QUERIES
    for retriever in ("dense", "lexical", "hybrid")
    for top_k, offset in ((10, 0), (7, 20), (100, 0))
)
RICH: tuple[dict[str, Any], ...] = (
    {"filter": {"field": "lang", "eq": "en"}},
    {"filter": {"and": [{"field": "year", "gte": 2005, "lt": 2009}, {"not": {"field": "tags", "in": ["t1", "t4"]}}]}},
    {"filter": {"field": "day", "gte": "2024-03-05", "lte": "2024-06-30"}},
    {"filter": {"field": "rare", "eq": "once"}},
    {"filter": {"field": "rare", "exists": False}, "top_k": 3},
    {"facets": [{"field": "tags"}, {"field": "year", "limit": 3}, {"field": "open"}, {"field": "rare"}]},
    {"filter": {"field": "open", "eq": True}, "facets": [{"field": "lang"}]},
    {"sort": [{"field": "year", "order": "desc"}, {"field": "day"}]},
    {"sort": [{"field": "open"}, {"field": "score"}]},
    {"group_by": {"field": "lang", "size": 2}},
    {"boosts": [{"filter": {"field": "lang", "eq": "fr"}, "factor": 3}]},
    {"boosts": [{"recency": {"field": "day", "half_life": "30000d", "weight": 0.5}}]},
    {"min_score": 0.2},
    {"highlight": True, "fields": ["title", "year"]},
    {"fusion": {"method": "rrf", "weights": {"dense": 0.3, "lexical": 0.7}}},
    {"candidates": 15},
    {"params": {"exact": True}},
    {"typos": "off"},
)  # fmt: skip


def without_clock(found: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """What is compared: scores that depend on the time of day to fewer digits."""
    if "boosts" not in body:
        return found
    return {**found, "hits": [{**hit, "score": round(hit["score"], 4)} for hit in found["hits"]]}


def test_searches_answer_as_one_index(one: IndexRoot, four: IndexRoot) -> None:
    whole, shards = opened(one), opened(four)
    for body in (*PLAIN, *({"query": query, **more} for query in QUERIES[:4] for more in RICH)):
        assert without_clock(answer(shards, body), body) == without_clock(answer(whole, body), body), body


@pytest.mark.parametrize("shards", [2, 7])
def test_the_cut_makes_no_difference(
    shards: int, toy_model: Path, corpus: Path, one: IndexRoot, tmp_path: Path
) -> None:
    whole, cut = opened(one), opened(made(toy_model, corpus, tmp_path / "set", shards, index="flat"))
    for body in PLAIN[::4]:
        assert answer(cut, body) == answer(whole, body), body


@pytest.mark.parametrize("options", [{"passages": True}, {"analyzer": "plain"}, {"lexical": False}])
def test_kinds_of_index(options: dict[str, Any], toy_model: Path, corpus: Path, tmp_path: Path) -> None:
    whole = opened(made(toy_model, corpus, tmp_path / "one", index="flat", **options))
    shards = opened(made(toy_model, corpus, tmp_path / "set", 3, index="flat", **options))
    for body in [body for body in PLAIN if body["top_k"] == 10]:  # further down, last bits part equal scores
        if options == {"lexical": False}:
            body = {**body, "retriever": "dense"}
        found, expected = answer(shards, body), answer(whole, body)
        for hit in (*found["hits"], *expected["hits"]):
            hit.get("passage", {}).pop("start", None)  # of a sentence that stands twice, either is the best
            hit.get("passage", {}).pop("end", None)
            hit["score"] = round(hit["score"], 4)
            hit["scores"] = {name: round(score, 4) for name, score in hit["scores"].items()}
        assert found == expected, body
    assert (shards.impacts is None) == (options == {"lexical": False})


def test_searches_without_a_text(one: IndexRoot, four: IndexRoot) -> None:
    whole, shards = opened(one), opened(four)
    vector = np.random.default_rng(3).standard_normal(whole.dense.dimensions).tolist()
    bodies: list[dict[str, Any]] = [
        {"vector": vector},
        {"vector": vector, "filter": {"field": "lang", "eq": "de"}, "top_k": 30},
        {"like": {"id": "d/12"}, "top_k": 20},
        {"filter": {"field": "lang", "eq": "de"}, "top_k": 50},
        {"filter": {"field": "year", "gte": 2010}, "offset": 40, "top_k": 25},
    ]
    for body in bodies:
        assert answer(shards, body) == answer(whole, body), body
    with pytest.raises(DocumentNotFoundError):
        answer(shards, {"like": {"id": "nobody"}})


def test_documents_come_from_their_shard(one: IndexRoot, four: IndexRoot) -> None:
    whole, shards = opened(one), opened(four)
    assert shards.documents.count == whole.documents.count == 240
    for number in (0, 77, 239):
        assert shards.documents.get(f"d/{number}") == whole.documents.get(f"d/{number}")
    with pytest.raises(DocumentNotFoundError):
        shards.documents.get("d/240")


@pytest.mark.parametrize(
    "body",
    [
        {"query": "bees", "explain": True},
        {"query": "bees", "rerank": True},
        {"query": "bees", "retriever": "learned"},
        {"filter": {"field": "lang", "eq": "de"}, "facets": [{"field": "year"}]},
        {"filter": {"field": "lang", "eq": "de"}, "sort": [{"field": "year"}]},
    ],
)
def test_what_a_set_does_not_do_is_told(body: dict[str, Any], four: IndexRoot) -> None:
    with pytest.raises(NotAvailableError, match="not over a set of shards"):
        answer(opened(four), body)


def test_fields_are_those_of_all_shards(one: IndexRoot, four: IndexRoot) -> None:
    whole, shards = opened(one), opened(four)
    assert whole.columns is not None and shards.columns is not None
    for name, field in whole.columns.fields.items():
        assert shards.columns.fields[name].documents == field.documents
        assert shards.columns.fields[name].parts.keys() == field.parts.keys()
    with pytest.raises(FilterError, match="no field 'nowhere'; known: "):
        answer(shards, {"query": "bees", "filter": {"field": "nowhere", "eq": 1}})


def test_a_page_whose_only_shard_fails_is_a_partial_answer(
    four: IndexRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = opened(four)

    def fails(*unused: object) -> bytes:
        raise MismatchError("a fault")

    monkeypatch.setattr("glow_service.shards.transport.answer_show", fails)
    checked = check_search({"query": "bees", "top_k": 1}, Settings(index_root=Path("unused")).limits, shards)
    found = open_session(shards, checked.call).run()  # no exception: whoever takes a part gets one
    assert not found.hits
    assert list(found.missing_shards.values()) == ["a fault"]


def test_a_version_with_the_same_model_keeps_its_encoder(four: IndexRoot) -> None:
    folder = four.folder(four.current())
    first = open_version(folder)
    again = open_version(folder, like=first)
    assert again.encoder is first.encoder
    assert again.preprocessor is first.preprocessor
