"""`POST /search`, `POST /search/batch` and `GET /documents/{id}` over a real server."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest

from glow.contract import BatchResult, DocumentResult, Matching, SearchResult
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow_service.settings import Settings
from tests.records import read_whole
from tests.service.asking import Serve

TEXT = "Honey bees find the way home by the sun, by landmarks and by the smell of their hive."
QUERY = "how do bees find the way home"


def test_an_answer_has_exactly_the_documented_shape(http: httpx.Client) -> None:
    response = http.post("/search", json={"query": QUERY})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    result = read_whole(response.content, SearchResult)
    assert result.degraded == () and result.query.text == QUERY and len(result.hits) == 3
    assert [hit.rank for hit in result.hits] == [1, 2, 3]
    assert (result.total, result.matching) == (3, Matching("all", 2))
    assert result.took_ms >= sum(result.timings_ms.values()) * 0.99


def test_hits_are_those_of_comparing_with_every_vector(http: httpx.Client, index: Index) -> None:
    hits = http.post(
        "/search", json={"query": QUERY, "top_k": 50, "retriever": "dense", "match": "any"}
    ).json()["hits"]
    vector = index.encoder.encode([index.preprocessor.query(QUERY)])[0]
    stored = index[VECTORS]._index.reconstruct_n(0, len(index[VECTORS]))  # type: ignore[attr-defined]  # the part itself, behind its view
    scores = stored @ vector
    documents = index[STORED_FIELDS].rows(np.argsort(-scores, kind="stable").tolist())
    assert [hit["id"] for hit in hits] == [document.id for document in documents]
    np.testing.assert_allclose([hit["score"] for hit in hits], np.sort(scores)[::-1], atol=2e-6)
    assert all(hit["scores"] == {"dense": hit["score"]} for hit in hits)


def test_the_document_that_answers_comes_first(http: httpx.Client) -> None:
    hits = http.post("/search", json={"query": TEXT}).json()["hits"]
    assert hits[0]["id"] == "toy/0" and hits[0]["fields"]["title"] == "Bees"
    assert hits[0]["metadata"] == {"lang": "en", "year": 2000}


def test_term_weights_are_those_that_the_tower_read(http: httpx.Client, index: Index) -> None:
    text = "Bees, bees and the 東京 café unseenword"
    terms = http.post("/search", json={"query": text}).json()["query"]["terms"]
    tokens = index.preprocessor.query(text)
    assert [term["word"] for term in terms] == list(dict.fromkeys(tokens.words))
    for term in terms:
        words = enumerate(tokens.word_ids)
        pieces = [i for i, word in words if word >= 0 and tokens.words[word] == term["word"]]
        np.testing.assert_allclose(tokens.weights[pieces], term["weight"], atol=1e-4)
        assert term["idf"] == pytest.approx(index.preprocessor.weigher.idf(term["word"]), abs=1e-4)
    weights = {term["word"]: term["weight"] for term in terms}
    assert weights["unseenword"] > weights["the"]


def test_a_query_over_its_token_budget_says_so(http: httpx.Client, index: Index) -> None:
    query = http.post("/search", json={"query": "honey bees " * 900}).json()["query"]
    assert query["truncated"] is True
    assert query["tokens"] == index.preprocessor.schema.query_tokens
    assert http.post("/search", json={"query": "bees"}).json()["query"]["truncated"] is False


def test_stop_words_are_searched_explained_and_marked_in_a_query_of_nothing_else(http: httpx.Client) -> None:
    body = {"retriever": "lexical", "explain": True, "highlight": True, "top_k": 3}
    alone, beside = (
        http.post("/search", json={**body, "query": query}).json() for query in ("To THE?", "the bees")
    )
    for found, wanted in ((alone, {"to", "the"}), (beside, {"bees"})):
        why = {each["word"] for hit in found["hits"] for each in hit["explanation"]["lexical"]}
        marks = set(re.findall("<em>(.*?)</em>", str([hit["highlights"] for hit in found["hits"]])))
        assert (
            why and why <= wanted and {mark.lower() for mark in marks} & {"to", "the"} == why & {"to", "the"}
        )


def test_only_the_fields_asked_for_come_back(http: httpx.Client) -> None:
    hits = http.post("/search", json={"query": QUERY, "fields": ["url", "title"]}).json()["hits"]
    assert all(list(hit["fields"]) == ["url", "title"] for hit in hits)
    hits = http.post("/search", json={"query": QUERY, "fields": []}).json()["hits"]
    assert all(hit["fields"] == {} and hit["metadata"] for hit in hits)


def test_fields_with_many_values_are_lists_and_others_strings(http: httpx.Client) -> None:
    fields = http.get("/documents/toy/0").json()["fields"]
    assert fields["title"] == "Bees" and fields["anchor"] == ["about bees", "more on bees"]
    assert fields["clicked_queries"] == ["what about bees"]
    assert "anchor" not in http.get("/documents/toy/1").json()["fields"]


def test_a_request_that_names_no_retriever_gets_both(http: httpx.Client) -> None:
    plain = http.post("/search", json={"query": QUERY}).json()["hits"]
    assert plain == http.post("/search", json={"query": QUERY, "retriever": "hybrid"}).json()["hits"]
    assert set(plain[0]["scores"]) == {"dense", "lexical"}


def test_an_answer_carries_its_headers(http: httpx.Client, index: Index) -> None:
    response = http.post("/search", json={"query": f"{QUERY} asked for its headers"})
    assert response.headers["x-index-version"] == index.version == response.json()["index"]["version"]
    assert response.json()["index"]["model"] == index.model
    stages = [part.split(";")[0] for part in response.headers["server-timing"].split(", ")]
    assert stages == ["preprocess", "queue", "encode", "search", "fetch", "total"]
    again = http.post("/search", json={"query": f"{QUERY} asked for its headers"})
    assert [part.split(";")[0] for part in again.headers["server-timing"].split(", ")] == ["cache", "total"]
    assert again.json()["hits"] == response.json()["hits"]
    assert response.headers["x-request-id"] == response.json()["request_id"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/documents", "/v1/documents"])
def test_every_document_is_found_by_its_id(http: httpx.Client, index: Index, path: str) -> None:
    for row in range(0, len(index[VECTORS]), 7):
        stored = index[STORED_FIELDS].rows([row])[0]
        found = read_whole(http.get(f"{path}/{stored.id}").content, DocumentResult)
        assert found.id == stored.id and found.metadata == stored.metadata
        assert found.fields["text"] == stored.fields["text"][0]


@pytest.mark.parametrize(
    "name", ["nope", "toy", "toy/", "toy/0/", "toy%2F0%00", "..%2F..%2Fetc%2Fpasswd", "%ff%fe", "'--"]
)
def test_an_unknown_id_is_a_404_that_names_it(http: httpx.Client, name: str) -> None:
    response = http.get(f"/documents/{name}")
    assert response.status_code == 404 and response.json()["code"] == "document_not_found"


def test_requests_side_by_side_get_the_answers_that_they_get_alone(http: httpx.Client) -> None:
    texts = [f"{word} and water" for word in ("bees", "tea", "moon", "train", "cache", "chess")]
    alone = {text: http.post("/search", json={"query": text}).json()["hits"] for text in texts}
    with ThreadPoolExecutor(8) as clients:
        answers = [*clients.map(lambda text: http.post("/search", json={"query": text}).json(), texts * 20)]
    assert [answer["hits"] for answer in answers] == [alone[text] for text in texts * 20]
    assert len({answer["request_id"] for answer in answers}) == len(answers)


def test_metadata_is_shown_by_a_dotted_path(http: httpx.Client) -> None:
    found = http.post("/search", json={"query": "bees", "top_k": 1, "fields": ["year"]}).json()
    assert set(found["hits"][0]["metadata"]) == {"year"}


# `POST /search/batch`: each search as if it were alone, each with its own answer or problem.

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
        assert result.pop("status") == 200 and without_times(result) == without_times(alone)


def test_a_search_at_fault_costs_itself_only(http: httpx.Client) -> None:
    searches = [{"query": "bees"}, {"query": ""}, {"query": "bees", "top_k": 0}, {"query": "rice"}]
    response = http.post("/search/batch", json={"searches": searches})
    results = response.json()["results"]
    read_whole(response.content, BatchResult)
    assert [result["status"] for result in results] == [200, 422, 422, 200]
    assert results[1]["problem"]["code"] == "invalid_query"
    assert results[2]["problem"]["errors"][0]["pointer"] == "/top_k"
    assert results[2]["problem"]["instance"] == "/searches/2" and results[3]["hits"]


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
    assert response.status_code == 422 and response.json()["errors"][0]["pointer"] == pointer


# Queries with typos, over HTTP.


def search(http: httpx.Client, query: str, **more: object) -> dict[str, Any]:
    answer = http.post("/search", json={"query": query, "top_k": 3, "fields": [], **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_slip_is_corrected_in_every_mode_and_the_answer_says_so(http: httpx.Client) -> None:
    for retriever in ("dense", "lexical", "hybrid"):
        right = search(http, "how do salmon swim", retriever=retriever)
        wrong = search(http, "how do slamon swim", retriever=retriever)
        assert wrong["hits"] == right["hits"] and "corrected" not in right["query"]
        assert wrong["query"]["corrected"] == {"text": "how do salmon swim", "words": {"slamon": "salmon"}}
        assert wrong["query"]["text"] == "how do slamon swim"


def test_off_searches_what_was_typed_and_says_which_words_are_known(http: httpx.Client) -> None:
    query = search(http, "slamon swim?", typos="off")["query"]
    assert "corrected" not in query
    known = {term["word"]: term["known"] for term in query["terms"]}
    assert known == {"slamon": False, "swim": True, "?": True}


def test_snippets_and_reasons_are_of_what_was_searched(http: httpx.Client) -> None:
    answer = search(http, "slamon", highlight=True, explain=True)
    first = answer["hits"][0]
    assert "<em>" in str(first["highlights"]) and "salmon" in str(first["highlights"]).lower()
    assert answer["query"]["explanation"]["terms"][0]["word"] == "salmon"


# Ids that are odd, and paths that only look like routes.

IDS = ("end", "end\n", "n\nl", " wsp ", "wsp", "a/b/", "\ttab")


def test_every_id_is_reached_and_no_other(build_index: Any, serve: Serve) -> None:
    root = build_index([{"_id": name, "text": f"bees number {at}"} for at, name in enumerate(IDS)])
    with serve(root) as client:
        for at, name in enumerate(IDS):
            document = client.get(f"/documents/{quote(name, safe='')}").json()
            assert (document["id"], document["fields"]["text"]) == (name, f"bees number {at}")
        for name in ("end\n\n", "tab", "n", "l"):
            assert client.get(f"/documents/{quote(name, safe='')}").json()["code"] == "document_not_found"
