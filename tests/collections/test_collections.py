"""Several indexes in one service, and keys that open a part: whatever way is tried, nobody finds a document of another."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from glow.artifact import IndexRoot
from glow_service.api.routes import ROUTES
from glow_service.settings import Settings
from tests.attacks.harness import serving
from tests.made_index import documents, made, write
from tests.until import until

KEYS = {"ann": "key-of-ann", "bob": "key-of-bob", "ops": "key-of-ops"}
TENANTS = """
[ann]
collections = ["default", "films"]
filter = {field = "owner", eq = "ann"}

[bob]
collections = ["default"]
filter = {and = [{field = "owner", eq = "bob"}]}

[ops]
"""
RARE = "xylograph"
"""A word that stands in documents of bob's alone."""


def owned() -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(documents(60)):
        owner = ("ann", "bob")[number % 2]
        text = f"{line['text']} {RARE} {number}" if owner == "bob" else line["text"]
        found.append({**line, "_id": f"{owner}/{number}", "owner": owner, "text": text})
    return found


@pytest.fixture(scope="module")
def service(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tenants")
    source = write(folder / "books.jsonl", owned())
    books = made(toy_model, source, folder / "books", index="flat", passages=True)
    films = made(toy_model, write(folder / "films.jsonl", documents(20)), folder / "films", index="flat")
    (folder / "tenants.toml").write_text(TENANTS)
    keys = ",".join(f"{name}:{hashlib.sha256(key.encode()).hexdigest()}" for name, key in KEYS.items())
    flags = ("--index", f"films={films.path}", "--tenants", str(folder / "tenants.toml"), "--api-keys", keys)
    with serving(books.path, *flags, "--feedback-log", str(folder / "feedback.jsonl")) as running:
        yield running.url


def as_(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[name]}"}


def ask(url: str, name: str, body: Any, path: str = "/search") -> httpx.Response:
    return httpx.post(f"{url}{path}", json=body, headers=as_(name), timeout=30)


SEARCHES: tuple[dict[str, Any], ...] = (
    *({"query": query, "retriever": retriever, "top_k": 60, "candidates": 60} for query in (RARE, "bees", "a note") for retriever in ("dense", "lexical", "hybrid")),
    {"query": RARE, "filter": {"field": "owner", "eq": "bob"}, "top_k": 60},
    {"query": RARE, "filter": {"or": [{"field": "owner", "eq": "bob"}, {"field": "owner", "eq": "ann"}]}, "top_k": 60},
    {"query": "bees", "filter": {"not": {"field": "owner", "eq": "ann"}}, "top_k": 60},
    {"filter": {"and": []}, "top_k": 60},
    {"filter": {"field": "owner", "exists": True}, "top_k": 60, "sort": [{"field": "year"}]},
    {"query": "bees", "highlight": True, "explain": True, "top_k": 20},
    {"query": "bees", "group_by": {"field": "owner", "size": 5}, "top_k": 20},
    {"query": "bees", "boosts": [{"filter": {"field": "owner", "eq": "bob"}, "factor": 9}], "top_k": 60},
    {"query": "bees", "sort": [{"field": "owner", "order": "desc"}], "top_k": 60},
    {"query": "bees", "params": {"exact": True}, "top_k": 60},
    {"query": "bees", "min_score": 0.0, "top_k": 60},
    {"query": "bees", "allow_partial": True, "timeout_ms": 5_000},
)  # fmt: skip


@pytest.mark.parametrize("body", SEARCHES)
def test_no_search_finds_a_document_of_another(service: str, body: dict[str, Any]) -> None:
    # The other one asked first: what is in a cache must not be found either.
    for name, other in (("bob", "ann"), ("ann", "bob"), ("bob", "ann"), ("ann", "bob")):
        answer = ask(service, name, body)
        assert answer.status_code == 200, answer.text
        found = answer.json()["hits"]
        assert all(hit["id"].startswith(f"{name}/") for hit in found)
        assert not [hit for hit in found if hit["metadata"].get("owner") == other]
        batch = ask(service, name, {"searches": [body, body]}, "/v1/search/batch").json()["results"]
        assert all(hit["id"].startswith(f"{name}/") for result in batch for hit in result["hits"])


def test_facets_count_what_the_key_opens(service: str) -> None:
    body = {"query": "bees", "facets": [{"field": "owner"}, {"field": "lang"}], "top_k": 1}
    counts = ask(service, "ann", body).json()["facets"]["owner"]["values"]
    assert [each["value"] for each in counts] == ["ann"]
    everything = ask(service, "ops", body).json()["facets"]["owner"]["values"]
    assert {each["value"] for each in everything} == {"ann", "bob"}


def test_words_of_others_are_not_suggested(service: str) -> None:
    body = {"query": "xylogreph", "retriever": "lexical"}
    assert ask(service, "ops", body).json()["query"]["corrected"] is not None
    for typos in ("auto", "off"):
        query = ask(service, "ann", {**body, "typos": typos}).json()["query"]
        assert query.get("corrected") is None
        assert RARE not in json.dumps(query)


@pytest.mark.parametrize("path", ["/documents", "/v1/documents"])
def test_documents_of_others_are_not_there(service: str, path: str) -> None:
    for name, wanted, status in (
        ("ann", "bob/1", 404),
        ("bob", "bob/1", 200),
        ("ops", "bob/1", 200),
        ("ann", "ann/0", 200),
        ("ann", "nobody", 404),
    ):
        assert httpx.get(f"{service}{path}/{wanted}", headers=as_(name)).status_code == status
        assert httpx.head(f"{service}{path}/{wanted}", headers=as_(name)).status_code == status
    there = httpx.get(f"{service}{path}/bob/1", headers=as_("ann")).json()
    absent = httpx.get(f"{service}{path}/bob/999", headers=as_("ann")).json()
    assert there["detail"].replace("bob/1", "") == absent["detail"].replace("bob/999", "")


def test_nothing_is_like_a_document_of_another(service: str) -> None:
    assert ask(service, "ann", {"like": {"id": "bob/1"}}).status_code == 404
    found = ask(service, "ann", {"like": {"id": "ann/0"}, "top_k": 60}).json()["hits"]
    assert found and all(hit["id"].startswith("ann/") for hit in found)
    searches = [{"like": {"id": "bob/1"}}, {"query": "bees"}]
    batch = ask(service, "ann", {"searches": searches}, "/search/batch").json()
    assert [each["status"] for each in batch["results"]] == [404, 200]
    embedded = ask(service, "ann", {"input": RARE, "input_type": "query"}, "/v1/embeddings")
    assert embedded.status_code == 200, embedded.text
    vector = embedded.json()["data"][0]["embedding"]
    found = ask(service, "ann", {"vector": vector, "top_k": 60}).json()["hits"]
    assert all(hit["id"].startswith("ann/") for hit in found)


def test_nothing_of_another_is_explained_or_suggested(service: str) -> None:
    asked = {"id": "bob/1", "query": "bees"}
    assert ask(service, "ann", asked, "/explain").status_code == 404
    assert ask(service, "bob", asked, "/explain").json()["id"] == "bob/1"
    for name in ("ops", "ann"):
        reply = httpx.get(f"{service}/suggest", params={"q": RARE[:5]}, headers=as_(name))
        assert reply.status_code == 200 and (RARE in reply.text) is (name == "ops")


def test_no_route_was_forgotten() -> None:
    """A new route that shows documents needs a line in this file."""
    tried = {
        "/search", "/search/batch", "/explain", "/suggest", "/v1/embeddings", "/v1/models", "/documents/{id:path}", "/feedback",
        # of other keys, or without documents
        "/documents", "/documents/delete", "/operations/{id}", "/healthz", "/readyz", "/metrics", "/info", "/admin/reload",
        "/admin/rollback", "/problems/{code}", "/openapi.json",
    }  # fmt: skip
    assert {route.paths[0] for route in ROUTES} == tried


def test_the_rest_says_nothing_of_them(service: str) -> None:
    for path in ("/info", "/v1/models", "/metrics", "/openapi.json"):
        text = httpx.get(f"{service}{path}", headers=as_("ann")).text
        assert RARE not in text and "bob/" not in text
    sent = {"request_id": "r", "id": "bob/1", "kind": "click"}
    assert ask(service, "ann", sent, "/feedback").json() == {"status": "noted"}


def test_collections_are_apart(service: str) -> None:
    books = ask(service, "ops", {"query": "bees", "top_k": 60}).json()
    films = ask(service, "ops", {"query": "bees", "top_k": 60}, "/v1/films/search").json()
    assert books["index"]["version"] != films["index"]["version"]
    assert {hit["id"].split("/")[0] for hit in films["hits"]} == {"d"}
    assert httpx.get(f"{service}/v1/films/documents/d/3", headers=as_("ops")).status_code == 200
    assert httpx.get(f"{service}/v1/documents/d/3", headers=as_("ops")).status_code == 404
    assert httpx.get(f"{service}/v1/films/info", headers=as_("ops")).json()["index"]["documents"] == 20
    batch = ask(service, "ops", {"searches": [{"query": "bees"}]}, "/v1/films/search/batch").json()
    assert batch["results"][0]["hits"][0]["id"].startswith("d/")
    assert ask(service, "ops", {"query": "bees"}, "/v1/nowhere/search").status_code == 404


def test_keys_open_their_collections_alone(service: str) -> None:
    assert ask(service, "bob", {"query": "bees"}, "/v1/films/search").status_code == 403
    # Its filter holds in each: these documents have no owner, so none is ann's.
    assert ask(service, "ann", {"query": "bees"}, "/v1/films/search").status_code == 422
    for path in ("/search", "/v1/films/search"):
        assert httpx.post(f"{service}{path}", json={"query": "bees"}).status_code == 401


def test_health_and_metrics_are_those_of_all(service: str) -> None:
    assert httpx.get(f"{service}/readyz").status_code == 200
    text = httpx.get(f"{service}/metrics").text
    for name in ("default", "films"):
        assert f'glow_ready{{collection="{name}"}} 1.0' in text
    assert text.count("# TYPE glow_requests_total counter") <= 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"index": "films"}, "expected NAME=ROOT"),
        ({"index": "search=x"}, "is reserved or used twice"),
        ({"index": "a=x,a=y"}, "is reserved or used twice"),
        ({"index": "A/b=x"}, "expected NAME=ROOT"),
        ({"index": "a=x", "workers": 2}, "one process serves several indexes"),
    ],
)
def test_settings_that_cannot_be_meant(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        Settings(index_root=tmp_path, **values)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no table for the API key ann"),
        ("[ann]\n[eve]\n", r"\[eve\] is not the name of an API key"),
        ("[ann]\nfilters = {}\n", "Extra inputs"),
        ("[ann", "cannot read the file"),
        ("[ann]\ncollections = []\n", r"\[ann\] collections is an empty list"),
        ("[ann]\ncollections = ['films']\n", r"\[ann\] collections has 'films', expected .*: default \[type"),
        ("[ann]\nfilter = {}\n", r"\[ann\] filter restricts nothing"),
        ("[ann]\nfilter = {not = {a = 1, or = []}}\n", r"\[ann\] filter restricts nothing"),
        ("[ann]\nfilter = {and = []}\n", r"\[ann\] filter restricts nothing"),
        ("[ann]\nfilter = {not = {or = [{and = [{or = []}]}]}}\n", r"\[ann\] filter restricts nothing"),
        ("[ann]\nfilter = {or = [{field = 'a', eq = 1}, {and = []}]}\n", r"\[ann\] filter restricts nothing"),
        (
            "[ann]\nfilter = {and = [{feild = 'owner', eq = 1}]}\n",
            r"\[ann\] filter has eq = 1, expected a list, or a field",
        ),
        ("[ann]\nfilter = {and = [], or = 3}\n", r"\[ann\] filter has or = 3, expected a list"),
        (f"[ann]\nfilter = {'{not = ' * 40}{{field = 'a', eq = 1}}{'}' * 40}\n", "nested deeper than 16"),
        (f"[ann]\nfilter = {'{not = ' * 3000}1{'}' * 3000}\n", "recursion"),
    ],
)
def test_tenants_that_open_more_than_was_meant_are_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(text)
    key = f"ann:{hashlib.sha256(b'x').hexdigest()}"
    with pytest.raises(ValueError, match=said) as refused:
        Settings(index_root=tmp_path, tenants=str(path), api_keys=key)
    assert isinstance(refused.value, ValidationError)
    (fault,) = refused.value.errors()
    assert "\n" not in fault["msg"]
    said = r"there are no API keys|is not the name of an API key|Extra|cannot read"
    with pytest.raises(ValueError, match=said):
        Settings(index_root=tmp_path, tenants=str(path))


@pytest.mark.parametrize(
    "table",
    [
        "",
        "collections = ['default', 'films']",
        "filter = {field = 'owner', eq = 'ann'}",
        "filter = {and = [{field = 'owner', eq = 'ann'}, {not = {field = 'secret', exists = true}}]}",
        "filter = {or = []}",
    ],
)
def test_tables_that_restrict_or_open_all_on_purpose_are_taken(table: str, tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(f"[ann]\n{table}\n")
    key = f"ann:{hashlib.sha256(b'x').hexdigest()}"
    Settings(index_root=tmp_path, index="films=x", tenants=str(path), api_keys=key)


def test_a_collection_is_swapped_by_itself(service: str, toy_model: Path, tmp_path: Path) -> None:
    root = made(toy_model, write(tmp_path / "a.jsonl", documents(10)), tmp_path / "a", index="flat")
    other = made(toy_model, write(tmp_path / "b.jsonl", documents(10)), tmp_path / "b", index="flat")
    with serving(root.path, "--index", f"b={other.path}") as running:
        first = httpx.get(f"{running.url}/v1/b/info").json()["index"]["version"]
        made(toy_model, write(tmp_path / "b2.jsonl", documents(12)), tmp_path / "b", index="flat")
        wanted = IndexRoot(tmp_path / "b").current()
        until(lambda: httpx.get(f"{running.url}/v1/b/info").json()["index"]["version"] == wanted)
        assert wanted != first
        assert httpx.get(f"{running.url}/info").json()["index"]["version"] == root.current()
