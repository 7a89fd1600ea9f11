"""Searches in an address, and the short forms of filters, facets and sort keys, over HTTP."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.made_index import made, write
from tests.service.asking import Serve, ServeOpen, assert_problem, ids, samples

LONG = {
    "query": "bees find home",
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
    "q": "bees find home",
    "k": "4",
    "offset": "1",
    "retriever": "lexical",
    "highlight": "true",
    "fields": "title, price",
    "facets": "shop",
    "sort": "-price,shop",
    "filter": '{"price": {"gte": 2}, "shop": ["s0", "s1"]}',
}
DOCUMENTS = [
    {
        "_id": f"d{number}",
        "title": f"Bees {number}",
        "text": f"Bees of hive {number} find the way home.",
        "shop": f"s{number % 3}",
        "price": number,
        "day": f"2024-{number + 1:02}-{10 + number}",
        **({"a/b": 1, "field": "x"} if number == 7 else {}),
    }
    for number in range(12)
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: Any, toy_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("short")
    return made(toy_model, write(folder / "corpus.jsonl", DOCUMENTS), folder / "index").path


@pytest.fixture(scope="module")
def client(root: Path, serve: Serve) -> Iterator[httpx.Client]:
    with serve(root) as http:
        yield http


def numbers(client: httpx.Client, chosen: Any) -> list[int]:
    answer = client.post("/search", json={"filter": chosen, "sort": "price", "top_k": 100})
    assert answer.status_code == 200, answer.text
    return [int(name[1:]) for name in ids(answer.json())]


@pytest.mark.parametrize("path", ["/search", "/v1/search"])
def test_an_address_says_what_a_body_says(client: httpx.Client, path: str) -> None:
    answers = [client.get(path, params=SHORT), client.post(path, json=LONG)]
    got, posted = (
        {
            key: value
            for key, value in answer.json().items()
            if key not in ("request_id", "took_ms", "timings_ms")
        }
        for answer in answers
    )
    assert got == posted and len(got["hits"]) == 4 and got["facets"]["shop"]["values"]
    assert answers[0].headers["cache-control"] == "no-store"
    short = {
        **LONG,
        "facets": "shop",
        "sort": ["-price", {"field": "shop"}],
        "filter": json.loads(SHORT["filter"]),
    }
    assert client.post(path, json=short).json()["hits"] == posted["hits"]
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


def test_a_get_is_let_in_limited_and_counted_as_a_post_is(root: Path, serve: Serve) -> None:
    digest = hashlib.sha256(b"k").hexdigest()
    with serve(root, api_keys=f"tester:{digest}", rate_limit=0.01, rate_burst=2) as client:
        assert_problem(client.get("/search?q=bees"), 401, "key_missing")
        assert_problem(client.get("/search?q=bees", headers={"X-API-Key": "no"}), 403, "key_refused")
        found = [client.get("/v1/search?q=bees", headers={"X-API-Key": "k"}).status_code for _ in range(3)]
        assert found == [200, 200, 429]
        assert samples(client)['glow_requests_total{route="/v1/search",status="200"}'] == 2.0


def test_a_get_needs_a_slot_as_a_post_does(root: Path, serve_open: ServeOpen) -> None:
    with serve_open(root, max_in_flight=1) as (client, service):
        service.pool.admission.enter()
        for method in ("GET", "HEAD"):
            assert client.request(method, "/v1/search?q=bees").status_code == 429
        service.pool.admission.leave()
        assert client.get("/search?q=bees").status_code == 200
        assert service.pool.admission.taken == 0


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
    assert numbers(client, chosen) == [*found]


def test_a_score_is_sorted_from_the_best(client: httpx.Client) -> None:
    body = {"query": "hive 7", "top_k": 12}
    best = client.post("/search", json=body).json()["hits"]
    assert client.post("/search", json={**body, "sort": "score"}).json()["hits"] == best


@pytest.mark.parametrize(
    ("body", "pointer", "detail"),
    [
        ({"q": "bees"}, "/q", "unknown field 'q'; did you mean 'query'?"),
        ({"query": "bees", "k": 3}, "/k", "did you mean 'top_k'?"),
        ({"query": "bees", "where": {}}, "/where", "did you mean 'filter'?"),
        ({"query": "bees", "feilds": []}, "/feilds", "did you mean 'fields'?"),
        ({"query": "bees", "zzz": 1}, "/zzz", "unknown field 'zzz'; /openapi.json lists the known ones"),
        ({"query": "bees", "facets": ["shop", {"field": "day", "size": 3}]}, "/facets/1/size", "did you mean 'limit'?"),
        ({"query": "bees", "highlight": {"fragment": 3}}, "/highlight/fragment", "did you mean 'fragments'?"),
        ({"query": "bees", "boosts": [{"recency": {"feild": "day"}}]}, "/boosts/0/recency/feild", "did you mean 'field'?"),
        ({"query": "bees", "facets": [3]}, "/facets/0", "expected an object, found 3"),
        ({"query": "bees", "filter": {"eq": 3}}, "/filter", "'eq' needs a field"),
        ({"query": "bees", "filter": {"price": {"eq": "5"}}}, "/filter/price/eq", "field 'price' holds numbers"),
        ({"query": "bees", "filter": {"shop": None}}, "/filter/shop", "{'exists': false}"),
    ],
)  # fmt: skip
def test_a_wrong_member_names_the_one_that_is_meant(
    client: httpx.Client, body: Any, pointer: str, detail: str
) -> None:
    problem = client.post("/search", json=body).json()
    assert problem["status"] == 422
    assert [
        fault["detail"]
        for fault in problem["errors"]
        if fault["pointer"] == pointer and detail in fault["detail"]
    ]
