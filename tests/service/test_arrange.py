"""Least scores, other orders, boosts, groups; searches by a vector and by likeness; browsing; short forms and addresses."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow_service.search import run
from tests.service import asking
from tests.service.asking import BuildIndex, Serve, ServeOpen, assert_problem, samples, sha256, without_times

TODAY = datetime.now(UTC)
BEES = "bees find home"
SOON = {"field": "day", "half_life": "soon"}
DOCUMENTS = [
    {
        "_id": f"d{number}",
        "title": f"Bees {number}",
        "text": f"Bees of hive {number} find the way home.",
        "shop": f"s{number % 3}",
        "price": [number, number + 0.5] if number % 2 else number,
        "day": f"2024-{number + 1:02}-{10 + number}",
        "changed": (TODAY - timedelta(days=10 * number)).date().isoformat(),
        **({"rare": "yes", "a/b": 1, "field": "x"} if number == 7 else {}),
    }
    for number in range(12)
]


@pytest.fixture(scope="module")
def root(build_index: BuildIndex) -> Path:
    return build_index(DOCUMENTS)


@pytest.fixture(scope="module")
def client(root: Path, serve: Serve) -> Iterator[httpx.Client]:
    with serve(root) as http:
        yield http


def search(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/search", json={"query": BEES, "top_k": 12, **body})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def ids(client: httpx.Client, **body: Any) -> list[str]:
    return asking.ids(search(client, **body))


def test_hits_below_the_least_score_are_left_out(client: httpx.Client) -> None:
    scores = [hit["score"] for hit in search(client, retriever="dense")["hits"]]
    least = sorted(scores)[4]
    kept = search(client, retriever="dense", min_score=least + 1e-5)["hits"]
    assert [hit["score"] for hit in kept] == [score for score in scores if score > least + 1e-5]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ([{"field": "price"}], range(12)),
        ([{"field": "price", "order": "desc"}], range(11, -1, -1)),
        ([{"field": "changed"}], range(11, -1, -1)),
        ([{"field": "shop", "order": "desc"}, {"field": "price"}], [2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9]),
    ],
)
def test_hits_are_sorted_by_columns(client: httpx.Client, sort: list[Any], order: Any) -> None:
    assert ids(client, sort=sort) == [f"d{number}" for number in order]


def test_documents_without_a_value_come_last_and_equal_ones_by_score(client: httpx.Client) -> None:
    by_score = ids(client)
    for order in ("asc", "desc"):
        found = ids(client, sort=[{"field": "rare", "order": order}])
        assert found == ["d7", *(name for name in by_score if name != "d7")]
    for best in ([{"field": "score", "order": "desc"}], "score"):
        assert ids(client, sort=best) == by_score


def test_boosts_lift_what_matches_and_what_is_new(client: httpx.Client) -> None:
    assert ids(client, boosts=[{"filter": {"field": "rare", "eq": "yes"}, "factor": 50}])[0] == "d7"
    assert ids(client, boosts=[{"filter": {"field": "rare", "eq": "yes"}, "factor": 0.01}])[-1] == "d7"
    recent = {"field": "changed", "half_life": "3d", "weight": 100}
    assert ids(client, boosts=[{"recency": recent}])[:3] == ["d0", "d1", "d2"]


def test_groups_keep_their_best(client: httpx.Client) -> None:
    by_score = ids(client)
    best: dict[int, str] = {}
    for name in by_score:
        best.setdefault(int(name[1:]) % 3, name)
    assert ids(client, group_by={"field": "shop"}) == [name for name in by_score if name in best.values()]
    assert len(ids(client, group_by={"field": "shop", "size": 2})) == 6
    assert len(ids(client, group_by={"field": "rare"})) == 12


def test_a_vector_searches_as_its_text_does(client: httpx.Client) -> None:
    asked = {"input": BEES, "input_type": "query"}
    vector = client.post("/v1/embeddings", json=asked).json()["data"][0]["embedding"]
    doubled = [2 * value for value in vector]  # its length does not matter
    assert ids(client, query=None, vector=doubled) == ids(client, retriever="dense")


def test_what_is_like_a_document_is_found_without_it(client: httpx.Client) -> None:
    found = ids(client, query=None, like={"id": "d3"}, filter={"shop": "s0"})
    assert sorted(found) == ["d0", "d6", "d9"]


def test_a_filter_without_a_query_browses_with_exact_counts(client: httpx.Client) -> None:
    body = {"filter": {"field": "price", "gte": 2}, "top_k": 3, "offset": 1}
    body |= {"sort": [{"field": "price", "order": "desc"}], "facets": [{"field": "shop"}]}
    answer = search(client, query="", **body)
    assert asking.ids(answer) == ["d10", "d9", "d8"]
    assert answer["facets"]["shop"]["counted"] == 10 and answer["facets"]["shop"]["approximate"] is False
    assert answer["query"]["terms"] == []
    assert ids(client, query=None, filter={"shop": "s1"}) == ["d1", "d10", "d4", "d7"]


@pytest.mark.parametrize("retriever", ["hybrid", "lexical"])
def test_another_order_of_very_many_matches_scores_the_page_alone(
    client: httpx.Client, retriever: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {
        "retriever": retriever,
        "candidates": 2,
        "match": "any",
        "top_k": 5,
        "offset": 4,
        "sort": "-price",
    }
    hits = search(client, **body)["hits"]
    monkeypatch.setattr(run, "MOST_SCORED", 9)  # more than a page, fewer than the matches
    page = search(client, **body, typos="off")
    assert page["total"] == 12 and [hit["rank"] for hit in hits] == [5, 6, 7, 8, 9]
    assert page["hits"] == hits and all(hit["score"] > 0 for hit in hits)


# Searches in an address, and the short forms of filters, facets and sort keys.

LONG = {
    "query": BEES,
    "top_k": 4,
    "offset": 1,
    "retriever": "lexical",
    "highlight": True,
    "fields": ["title", "price"],
    "facets": [{"field": "shop", "limit": 10}],
    "sort": [{"field": "price", "order": "desc"}, {"field": "shop"}],
    "filter": {"and": [{"field": "price", "gte": 2}, {"field": "shop", "in": ["s0", "s1"]}]},
}
SHORT = {
    "q": BEES,
    "k": "4",
    "offset": "1",
    "retriever": "lexical",
    "highlight": "true",
    "fields": "title, price",
    "facets": "shop",
    "sort": "-price,shop",
    "filter": '{"price": {"gte": 2}, "shop": ["s0", "s1"]}',
}


@pytest.mark.parametrize("path", ["/search", "/v1/search"])
def test_an_address_says_what_a_body_says(client: httpx.Client, path: str) -> None:
    got, posted = client.get(path, params=SHORT), client.post(path, json=LONG)
    assert without_times(got.json()) == without_times(posted.json())
    assert len(got.json()["hits"]) == 4 and got.json()["facets"]["shop"]["values"]
    assert got.headers["cache-control"] == "no-store"
    short = {"facets": "shop", "sort": ["-price", {"field": "shop"}], "filter": json.loads(SHORT["filter"])}
    assert client.post(path, json={**LONG, **short}).json()["hits"] == posted.json()["hits"]
    head = client.head(path, params=SHORT)
    assert head.status_code == 200 and not head.content


@pytest.mark.parametrize(
    ("address", "pointer", "detail"),
    [
        ("q=bees&limit=3", "/limit", "unknown field 'limit'; did you mean 'top_k'?"),
        ("q=bees&query=ants", "/query", "found twice"),
        ("q=bees&k=many", "/top_k", "valid integer, found 'many'"),
        ("q=bees&explain=1", "/explain", "valid boolean"),
        ("q=bees&filter={price", "/filter", "not JSON"),
        ("q=bees&filter={%22prize%22:5}", "/filter/prize", "no field 'prize'"),
        ("q=%ff", "", "in UTF-8"),
        ("&".join(f"x{n}=" for n in range(200)), "", "at most 100 parameters"),
        (f"q=bees&boosts=[{{{','.join(f'%22x{n}%22:1' for n in range(101))}}}]", "", "at most 100 members"),
        ("k=3", "/query", "required, but missing"),
    ],
)
def test_a_wrong_address_is_a_problem_with_its_place(
    client: httpx.Client, address: str, pointer: str, detail: str
) -> None:
    problem = client.get(f"/search?{address}").json()
    assert (problem["status"], problem["errors"][0]["pointer"]) == (422, pointer)
    assert detail in problem["errors"][0]["detail"]


def test_a_get_is_let_in_limited_and_counted_as_a_post_is(root: Path, serve_open: ServeOpen) -> None:
    settings = {"api_keys": f"tester:{sha256('k')}", "rate_limit": 0.01, "rate_burst": 4, "max_in_flight": 1}
    with serve_open(root, **settings) as (client, service):
        assert_problem(client.get("/search?q=bees"), 401, "key_missing")
        assert_problem(client.get("/search?q=bees", headers={"X-API-Key": "no"}), 403, "key_refused")
        client.headers["X-API-Key"] = "k"
        service.pool.admission.enter()
        assert [client.request(method, "/v1/search?q=bees").status_code for method in ("GET", "HEAD")] == [
            429
        ] * 2
        service.pool.admission.leave()
        assert [client.get("/v1/search?q=bees").status_code for _ in range(2)] == [200, 200]
        refused = client.get("/v1/search?q=bees")
        assert_problem(refused, 429, "rate_limited")
        assert 90 <= int(refused.headers["retry-after"]) <= 100
        assert samples(client)['glow_rejected_total{reason="rate_limited"}'] == 1
        assert service.pool.admission.taken == 0
        assert samples(client)['glow_requests_total{route="/v1/search",status="200"}'] == 2


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({}, range(12)),
        ({"price": 5}, [5]),
        ({"shop": ["s0", "s2"]}, [0, 2, 3, 5, 6, 8, 9, 11]),
        ({"price": {"gte": 3, "lt": 6}, "shop": {"in": ["s0", "s1"]}}, [3, 4]),
        ({"shop": "s1", "or": [{"price": 1}, {"price": {"gt": 8}}]}, [1, 10]),
        ({"not": {"shop": "s1"}, "price": {"lt": 3}}, [0, 2]),
        ({"and": [{"field": "price", "lte": 4}, {"shop": "s0"}]}, [0, 3]),
        ({"a/b": {"exists": True}}, [7]),
        ({"field": "field", "eq": "x"}, [7]),
        ({"day": "2024-02"}, [1]),
        ({"day": "2024"}, range(12)),
        ({"day": {"gt": "2024-10"}}, [10, 11]),
        ({"day": {"gte": "2024-10", "lte": "2024-11"}}, [9, 10]),
        ({"day": {"lt": "2024-02"}}, [0]),
        ({"day": {"gt": "2024"}}, []),
    ],
)
def test_short_filters_mean_what_they_say(client: httpx.Client, chosen: Any, found: Any) -> None:
    assert ids(client, query=None, filter=chosen, sort="price") == [f"d{number}" for number in found]


@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        ({"q": "bees"}, "/q", "unknown field 'q'; did you mean 'query'?"),
        ({"k": 3}, "/k", "did you mean 'top_k'?"),
        ({"where": {}}, "/where", "did you mean 'filter'?"),
        ({"feilds": []}, "/feilds", "did you mean 'fields'?"),
        ({"zzz": 1}, "/zzz", "unknown field 'zzz'; /openapi.json lists the known ones"),
        ({"facets": ["shop", {"field": "day", "size": 3}]}, "/facets/1/size", "did you mean 'limit'?"),
        ({"highlight": {"fragment": 3}}, "/highlight/fragment", "did you mean 'fragments'?"),
        ({"boosts": [{"recency": {"feild": "day"}}]}, "/boosts/0/recency/feild", "did you mean 'field'?"),
        ({"facets": [3]}, "/facets/0", "expected an object, found 3"),
        ({"filter": {"eq": 3}}, "/filter", "'eq' needs a field"),
        ({"filter": {"price": {"eq": "5"}}}, "/filter/price/eq", "field 'price' holds numbers"),
        ({"filter": {"shop": None}}, "/filter/shop", "{'exists': false}"),
        ({"sort": [{"field": "colour"}]}, "/sort/0/field", "invalid_filter"),
        ({"group_by": {"field": "colour"}}, "/group_by/field", "invalid_filter"),
        ({"boosts": [{}]}, "/boosts/0", "invalid_request"),
        ({"boosts": [{"recency": {"field": "shop"}}]}, "/boosts/0/recency/field", "invalid_filter"),
        ({"boosts": [{"recency": SOON}]}, "/boosts/0/recency/half_life", "invalid_request"),
        ({"boosts": [{"filter": {"field": "shop", "eq": 3}}]}, "/boosts/0/filter/eq", "invalid_filter"),
        ({"vector": [1.0]}, "/vector", "invalid_request"),
        ({"query": "", "like": {"id": "d1"}, "explain": True}, "/explain", "invalid_request"),
        ({"query": "", "like": {"id": "d1"}, "retriever": "hybrid"}, "/retriever", "invalid_request"),
        ({"query": " "}, "/query", "invalid_query"),
    ],
)
def test_a_wrong_member_is_refused_at_its_place_and_names_the_one_that_is_meant(
    client: httpx.Client, body: Any, pointer: str, said: str
) -> None:
    problem = client.post("/search", json={"query": "bees", **body}).json()
    assert problem["status"] == 422
    details = [each["detail"] for each in problem["errors"] if each["pointer"] == pointer]
    assert details and said in "; ".join([problem["code"], *details])
