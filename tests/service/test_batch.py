"""`POST /search/batch`: each search as if it were alone, each with its own answer or problem."""

from typing import Any

import httpx
import pytest

from glow.contract import BatchResult
from glow_service.settings import Settings
from tests.records import read_whole

QUERIES = ["how do bees find the way home", "salmon swim up the river", "when do volcanoes erupt", "rice"]


def without_times(value: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in ("request_id", "took_ms", "timings_ms")}


@pytest.mark.parametrize("path", ["/search/batch", "/v1/search/batch"])
def test_a_batch_answers_each_search_as_it_would_alone(http: httpx.Client, path: str) -> None:
    searches = [{"query": query, "top_k": 3, "fields": ["title"]} for query in QUERIES]
    response = http.post(path, json={"searches": searches})
    assert response.status_code == 200
    found = response.json()
    read_whole(response.content, BatchResult)
    assert found["request_id"] == response.headers["x-request-id"]
    assert len(found["results"]) == len(QUERIES)
    for search, result in zip(searches, found["results"], strict=True):
        alone = http.post("/search", json=search).json()
        assert result.pop("status") == 200
        assert without_times(result) == without_times(alone)


def test_a_search_at_fault_costs_itself_only(http: httpx.Client) -> None:
    searches = [{"query": "bees"}, {"query": ""}, {"query": "bees", "top_k": 0}, {"query": "rice"}]
    response = http.post("/search/batch", json={"searches": searches})
    results = response.json()["results"]
    read_whole(response.content, BatchResult)
    assert [result["status"] for result in results] == [200, 422, 422, 200]
    assert results[1]["problem"]["code"] == "invalid_query"
    assert results[2]["problem"]["errors"][0]["pointer"] == "/top_k"
    assert results[2]["problem"]["instance"] == "/searches/2"
    assert results[3]["hits"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/searches"),
        ({"searches": []}, "/searches"),
        ({"searches": [{"query": "bees"}] * 65}, "/searches"),
        ({"searches": ["bees"]}, "/searches/0"),
        ({"searches": [{"query": "bees"}], "top_k": 3}, "/top_k"),
    ],
)
def test_a_batch_that_is_none_is_refused_whole(http: httpx.Client, body: Any, pointer: str) -> None:
    assert Settings.model_fields["max_batch_queries"].default == 64
    response = http.post("/search/batch", json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == pointer
