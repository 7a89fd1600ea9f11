"""`POST /search`, `POST /search/batch` and `GET /documents/{id}` over a real server, and the bound of an answer."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import orjson
import pytest

import glow_service.api.search
import glow_service.search.plan
from glow.client import GlowClient
from glow.contract import BatchResult, DocumentResult, Hit
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from glow_service.errors import AnswerTooLargeError
from glow_service.search.hits import HIGHLIGHTS, METADATA, AnswerSize
from glow_service.settings import Settings
from tests.records import read_whole
from tests.service.asking import QUERY, BuildIndex, Serve, ask, assert_problem, ids, without_times


def test_hits_are_those_of_comparing_with_every_vector(http: httpx.Client, index: Index) -> None:
    hits = ask(http, top_k=50, retriever="dense")["hits"]
    stored = http.post("/search", json={"query": QUERY, "top_k": 50, "match": "any", "vectors": True}).json()
    vector = index.encoder.encode([index.preprocessor.query(QUERY)])[0]
    cosines = {hit["id"]: float(np.dot(hit["vector"], vector)) for hit in stored["hits"]}
    assert len(cosines) == 50 and ids({"hits": hits}) == sorted(cosines, key=lambda name: -cosines[name])
    assert {hit["id"]: hit["score"] for hit in hits} == pytest.approx(cosines, abs=1e-5)
    assert all(hit["scores"] == {"dense": hit["score"]} for hit in hits)


def test_a_query_over_its_token_budget_says_so(http: httpx.Client, index: Index) -> None:
    query = ask(http, "honey bees " * 900)["query"]
    assert query["truncated"] is True and query["tokens"] == index.preprocessor.schema.query_tokens
    assert ask(http, "bees")["query"]["truncated"] is False


def test_only_the_fields_asked_for_come_back(http: httpx.Client) -> None:
    for hit in ask(http, fields=["url", "title"])["hits"]:
        assert list(hit["fields"]) == ["url", "title"]
    for hit in ask(http, fields=[])["hits"]:
        assert hit["fields"] == {} and hit["metadata"]
    (hit,) = ask(http, top_k=1, fields=["year"])["hits"]
    assert set(hit["metadata"]) == {"year"}


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
    for stored in [*index[STORED_FIELDS].scan()][::7]:
        found = read_whole(http.get(f"{path}/{stored.id}").content, DocumentResult)
        assert found.id == stored.id and found.metadata == stored.metadata
        assert found.fields["text"] == stored.fields["text"][0]
    # Fields with many values are lists.
    fields = http.get(f"{path}/toy/0").json()["fields"]
    assert fields["title"] == "Bees" and fields["anchor"] == ["about bees", "more on bees"]
    assert fields["clicked_queries"] == ["what about bees"]
    assert "anchor" not in http.get(f"{path}/toy/1").json()["fields"]


@pytest.mark.parametrize(
    "name", ["nope", "toy", "toy/", "toy/0/", "toy%2F0%00", "..%2F..%2Fetc%2Fpasswd", "%ff%fe", "'--"]
)
def test_an_unknown_id_is_a_404_that_names_it(http: httpx.Client, name: str) -> None:
    assert_problem(http.get(f"/documents/{name}"), 404, "document_not_found")


def test_requests_side_by_side_get_the_answers_that_they_get_alone(http: httpx.Client) -> None:
    texts = [f"{word} and water" for word in ("bees", "tea", "moon", "train", "cache", "chess")]
    alone = {text: ask(http, text)["hits"] for text in texts}
    with ThreadPoolExecutor(8) as clients:
        answers = [*clients.map(lambda text: ask(http, text), texts * 10)]
    assert [answer["hits"] for answer in answers] == [alone[text] for text in texts * 10]
    assert len({answer["request_id"] for answer in answers}) == len(answers)


# `POST /search/batch`: each search as if it were alone, each with its own answer or problem.

QUERIES = ["how do bees find the way home", "salmon swim up the river", "when do volcanoes erupt", "rice"]


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


def test_a_slip_is_corrected_in_every_mode_and_the_answer_says_so(http: httpx.Client) -> None:
    for retriever in ("dense", "lexical", "hybrid"):
        right, wrong = (
            ask(http, f"how do {word} swim", retriever=retriever) for word in ("salmon", "slamon")
        )
        assert wrong["hits"] == right["hits"] and "corrected" not in right["query"]
        assert wrong["query"]["corrected"] == {"text": "how do salmon swim", "words": {"slamon": "salmon"}}
        assert wrong["query"]["text"] == "how do slamon swim"
    query = ask(http, "slamon swim?", typos="off")["query"]
    assert "corrected" not in query
    assert {term["word"]: term["known"] for term in query["terms"]} == {
        "slamon": False,
        "swim": True,
        "?": True,
    }
    # Snippets and reasons are of what was searched.
    answer = ask(http, "slamon", highlight=True, explain=True)
    highlights = str(answer["hits"][0]["highlights"]).lower()
    assert "<em>" in highlights and "salmon" in highlights
    assert answer["query"]["explanation"]["terms"][0]["word"] == "salmon"


# Ids that are odd, and paths that only look like routes.

IDS = ("end", "end\n", "n\nl", " wsp ", "wsp", "a/b/", "\ttab")


def test_every_id_is_reached_and_no_other(build_index: BuildIndex, serve: Serve) -> None:
    root = build_index([{"_id": name, "text": f"bees number {at}"} for at, name in enumerate(IDS)])
    with serve(root) as client:
        for at, name in enumerate(IDS):
            document = client.get(f"/documents/{quote(name, safe='')}").json()
            assert (document["id"], document["fields"]["text"]) == (name, f"bees number {at}")
        for name in ("end\n\n", "tab", "n", "l"):
            assert_problem(client.get(f"/documents/{quote(name, safe='')}"), 404, "document_not_found")


# Answers have a bound, whatever the documents are: hits are cut to it, and say so.

LONG = Document("a", {"title": ("Bees",), "text": ("ä" * 3_000,)}, {"lang": "en"})
SMALL = Document("b", {"title": ("Bees",)}, {})


def hit(document: Document, highlights: dict[str, tuple[str, ...]] | None = None) -> Hit:
    fields = {name: values[0] for name, values in document.fields.items()}
    return Hit(1, document.id, 1.0, {}, fields, document.metadata, highlights=highlights)


def fitted(most: int, hits: list[Hit]) -> list[Hit]:
    size = AnswerSize(most, len(hits), may_cut=True)
    for each in hits:
        size.add(each)
    return size.hits


def test_while_all_fits_nothing_is_cut() -> None:
    hits = [hit(LONG), *[hit(SMALL)] * 9]
    assert fitted(7_000, hits) == fitted(0, hits) == hits  # 0: without a bound
    (spread,) = fitted(1_000, [hit(Document("a", {"text": ("\x01" * 5_000,)}))])  # as JSON has it
    assert spread.truncated == ("text",) and 500 < len(orjson.dumps(spread.fields)) <= 1_040


def test_what_does_not_fit_is_refused_if_nothing_may_be_cut() -> None:
    size = AnswerSize(15_000, 5, may_cut=False)
    size.add(hit(LONG, {}))
    size.add(hit(LONG, {}))
    said = r"at hit 3 of 5; request fewer hits \(top_k 2 fits\).*text is the largest part"
    with pytest.raises(AnswerTooLargeError, match=said):
        size.add(hit(LONG))


@pytest.mark.parametrize("most", [200, 1_000, 5_000, 20_000])
def test_hits_are_cut_field_by_field_to_equal_shares(most: int) -> None:
    found = fitted(most, [hit(LONG)] * 4)
    bodies = [orjson.dumps([each.fields, each.metadata]) for each in found]
    assert sum(map(len, bodies)) <= most + 4 * 40  # braces and names are not counted
    for each in found:
        assert each.fields["title"] == "Bees" and each.metadata == {"lang": "en"}
        text = each.text("text")
        assert LONG.fields["text"][0].startswith(text)
        assert each.truncated == (("text",) if len(text) < 3_000 else ())


def test_one_large_hit_takes_nothing_from_small_ones_before_and_after_it() -> None:
    hits = fitted(3_000, [hit(SMALL)] * 4 + [hit(LONG)] + [hit(SMALL)] * 4)
    assert [each.truncated for each in hits] == [()] * 4 + [("text",)] + [()] * 4
    assert len(hits[4].text("text")) > 250


def test_metadata_and_snippets_stay_whole_or_go() -> None:
    large = Document("a", {"title": ("Bees",)}, {"log": "x" * 1_000})
    (found,) = fitted(100, [hit(large, {"title": ("<em>Bees</em>" * 100,)})])
    assert (found.metadata, found.highlights, found.truncated) == ({}, {}, (HIGHLIGHTS, METADATA))
    assert found.fields == {"title": "Bees"}


def bound(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for module in (glow_service.search.plan, glow_service.api.search):
        monkeypatch.setattr(module, "MAX_ANSWER_BYTES", most)


def test_a_service_cuts_unless_it_must_not(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, 2_000)
    with serve() as client:
        body: dict[str, Any] = {"query": "bees", "top_k": 20, "match": "any"}
        refused = client.post("/search", json={**body, "allow_truncated": False})
        assert_problem(refused, 422, "answer_too_large")
        cut = client.post("/search", json=body).json()
        assert client.post("/search", json={**body, "allow_truncated": True}).json()["hits"] == cut["hits"]
        assert len(cut["hits"]) == 20
        assert any("text" in hit["truncated"] for hit in cut["hits"] if "truncated" in hit)
        few = {"query": "bees", "top_k": 1, "fields": ["title"], "allow_truncated": False}
        assert client.post("/search", json=few).status_code == 200
        results = client.post("/search/batch", json={"searches": [few] * 8}).json()["results"]
        assert 200 in [result["status"] for result in results]
        problems = [result["problem"] for result in results if "problem" in result]
        assert {problem["code"] for problem in problems} == {"answer_too_large"}
        results = client.post("/search/batch", json={"searches": [body] * 8}).json()["results"]
        assert [result["status"] for result in results] == [200] * 8


def test_documents_far_beyond_the_bound_make_no_search_fail(
    serve: Serve, build_index: BuildIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "bees find home " + f"{'b' * 99} " * 1_500
    records = [{"_id": f"bee{at}", "title": f"Hive {at}", "text": text, "kind": "bee"} for at in range(2)]
    bees = {"query": "bees find home"}
    like, by_filter = {"like": {"id": "bee1"}}, {"filter": {"field": "kind", "eq": "bee"}}
    bound(monkeypatch, 20_000)
    with serve(build_index(records, index="flat")) as client:
        # What people send who name nothing, one hit, the whole document, and every other way to a hit.
        lexical = {"retriever": "lexical", "top_k": 3, "highlight": True}
        texts = ({}, {"top_k": 1}, lexical, {"top_k": 1, "explain": True}, {"offset": 1})
        for body in (*({**bees, **more} for more in texts), like, by_filter):
            answer = client.post("/search", json=body)
            assert answer.status_code == 200, answer.text
            hits = answer.json()["hits"]
            assert hits and all("text" in hit["truncated"] for hit in hits)
            assert all(hit["fields"]["title"].startswith("Hive") for hit in hits)
            assert sum(len(json.dumps([hit["fields"], hit["metadata"]])) for hit in hits) < 25_000
        results = client.post("/search/batch", json={"searches": [bees, like, by_filter]}).json()["results"]
        assert [result["status"] for result in results] == [200] * 3
        assert sum(len(json.dumps(result["hits"])) for result in results) < 30_000
        assert client.get("/documents/bee1").json()["fields"]["text"] == text
        with GlowClient(str(client.base_url), timeout_s=60) as glow:
            assert glow.search("bees find home", top_k=1).hits[0].truncated == ("text",)
