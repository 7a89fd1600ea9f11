"""What every index is asked; what it cannot answer is refused, and the refusal is a golden too."""

from typing import Any

__all__ = ["DOCUMENTS", "SEARCHES"]

Json = dict[str, Any]
HOME, SHADE = "how do bees find the way home", "coffee beans grow in the shade"
RETRIEVERS = ("dense", "lexical", "learned-sparse", "hybrid")
FILTER: Json = {
    "and": [
        {"or": [{"field": "lang", "in": ["en", "de"]}, {"field": "place.city", "exists": True}]},
        {"field": "day", "gte": "2024-02-01"},
        {"not": {"field": "tags", "eq": "t4"}},
        {"field": "year", "gt": 2000, "lte": 2060},
    ]
}
FACETS = [{"field": name, "limit": 4} for name in ("lang", "tags", "year", "code")]
ANY: Json = {"match": "any"}
"""Most questions are about the ranking of every candidate."""
SORT = [{"field": "year", "order": "desc"}, {"field": "day"}]
DOCUMENTS = ("d/1", "toy/1", "toy/3", "new/volcano", "d/5", "copy/2")
"""Ids that are fetched: of the base, replaced, new, deleted, or of another corpus."""


def _of_each(retriever: str) -> dict[str, Json]:
    asked: dict[str, Json] = {
        "home": {"query": HOME, "top_k": 8},
        "page": {"query": SHADE, "top_k": 5, "offset": 3},
        "filtered": {"query": HOME, "top_k": 6, "filter": FILTER, "facets": FACETS},
        "matches": {"query": SHADE, "top_k": 6, "match": "auto", "facets": FACETS, "sort": SORT},
        "explained": {"query": HOME, "top_k": 1, "explain": {"leave_one_out": True}, "highlight": True},
    }
    return {f"{retriever} {name}": {**ANY, **body, "retriever": retriever} for name, body in asked.items()}


def _others() -> dict[str, Json]:
    """Of the index's own retriever, unless they are about one."""
    home: Json = {**ANY, "query": HOME, "top_k": 6}
    return {
        "sorted": {**home, "sort": SORT},
        "grouped": {**home, "group_by": {"field": "lang", "size": 2}},
        "boosted": {**home, "boosts": [{"filter": {"field": "lang", "eq": "de"}, "factor": 3.0}]},
        "least score": {**home, "retriever": "dense", "min_score": 0.333},
        "exact": {**home, "retriever": "dense", "params": {"exact": True}},
        "params": {**home, "retriever": "dense", "params": {"ef_search": 16, "nprobe": 2}},
        "rrf": {**home, "retriever": "hybrid", "fusion": {"method": "rrf", "k": 20}},
        "weights": {**home, "retriever": "hybrid", "fusion": {"weights": {"dense": 0.2, "lexical": 0.8}}},
        "like": {"like": {"id": "new/volcano"}, "top_k": 4},
        "like its like": {"like": {"id": "new/same"}, "top_k": 4, "retriever": "dense"},
        "vector": {"vector": [((7 * place) % 11 - 5) / 10 for place in range(32)], "top_k": 4},
        "browsed": {
            "filter": {"field": "day", "gte": "2024-05-01"},
            "sort": SORT,
            "top_k": 6,
            "facets": FACETS,
        },
        "slip": {"query": "cofee beens", "top_k": 3},
        "slip off": {"query": "cofee beens", "top_k": 3, "typos": "off"},
        "deep": {
            "query": "volcano",
            "candidates": 1000,
            "top_k": 4,
            "facets": [{"field": "lang", "limit": 2}],
        },
        "join": {**home, "rerank": {"depth": 8}},
        "join filtered": {**home, "rerank": {"depth": 8}, "filter": FILTER},
        "join explained": {**home, "top_k": 1, "rerank": True, "explain": True},
    }


def _refused() -> dict[str, Json]:
    return {
        "no such field": {"query": HOME, "filter": {"field": "nope", "eq": 1}},
        "no such type": {"query": HOME, "filter": {"field": "year", "eq": "2000"}},
        "no such facet": {"query": HOME, "facets": [{"field": "nope"}]},
        "no such order": {"query": HOME, "sort": [{"field": "nope"}]},
        "no such group": {"query": HOME, "group_by": {"field": "nope"}},
        "no such document": {"like": {"id": "nobody"}},
        "no such text field": {"query": HOME, "fields": ["nope"]},
        "few numbers": {"vector": [1.0, 2.0]},
        "no query": {"query": " "},
        "fusion of one": {"query": HOME, "retriever": "dense", "fusion": {"method": "rrf"}},
        "too many": {"query": HOME, "top_k": 101},
    }


SEARCHES: dict[str, Json] = {
    **{name: body for retriever in RETRIEVERS for name, body in _of_each(retriever).items()},
    **_others(),
    **_refused(),
}
"""Name -> body of `POST /search`."""
