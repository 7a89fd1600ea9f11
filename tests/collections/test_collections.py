"""Several indexes in one service, and keys that open a part: whatever way is tried, nobody finds a document of another."""

import hashlib
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from pydantic import ValidationError
from typer.testing import CliRunner

from glow.artifact import IndexRoot
from glow_service.api.routes import ROUTES
from glow_service.commands.serve import serve_command
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
filter = {and = [{field = "owner", eq = "bob"}, {not = {or = [{field = "owner", eq = "ann"}]}}]}

[ops]
"""
RARE = "xylograph"
"""A word that stands in documents of bob's alone."""


def owned(number: int, line: dict[str, Any]) -> dict[str, Any]:
    owner = ("ann", "bob")[number % 2]
    text = f"{line['text']} {RARE} {number}" if owner == "bob" else line["text"]
    return {**line, "_id": f"{owner}/{number}", "owner": owner, "text": text}


def index_in(folder: Path, model: Path, records: list[dict[str, Any]], **options: Any) -> IndexRoot:
    source = write(folder.with_suffix(".jsonl"), records)
    return made(model, source, folder, index="flat", **options)


@pytest.fixture(scope="module")
def service(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tenants")
    records = [owned(number, line) for number, line in enumerate(documents(60))]
    books = index_in(folder / "books", toy_model, records, passages=True)
    films = index_in(folder / "films", toy_model, documents(20))
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
    ("index", "said"),
    [
        ("films", "expected NAME=ROOT"),
        ("A/b=x", "expected NAME=ROOT"),
        ("search=x", "is reserved or used twice"),
        ("a=x,a=y", "is reserved or used twice"),
    ],
)
def test_settings_that_cannot_be_meant(index: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        Settings(index_root=tmp_path, index=index)
    with pytest.raises(ValueError, match="one process serves several indexes"):
        Settings(index_root=tmp_path, index="a=x", workers=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no table for the API key ann"),
        ("[ann]\n[eve]\n", r"\[eve\] is not the name of an API key"),
        ("[ann]\nfilters = {}\n", "Extra inputs"),
        ("[ann", "cannot read the file"),
        ("[ann]\ncollections = []\n", r"\[ann\] collections is an empty list"),
        ("[ann]\ncollections = ['films']\n", r"\[ann\] collections has 'films', expected .*: default \[type"),
        *(
            (f"[ann]\nfilter = {filter}\n", r"\[ann\] filter restricts nothing")
            for filter in (
                "{}",
                "{and = []}",
                "{not = {a = 1, or = []}}",
                "{not = {or = [{and = [{or = []}]}]}}",
                "{or = [{field = 'a', eq = 1}, {and = []}]}",
            )
        ),
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
    ("flags", "variable", "config"),
    [
        (("--index", "a=X", "--index", "a=Y"), "", ""),
        (("--index", "a=X,b=Z", "--index", "a=Y"), "", ""),
        ((), "a=X,a=Y", ""),
        ((), "", 'index = "a=X,a=Y"'),
        ((), "", 'index = ["a=X", "a=Y"]'),
    ],
)
def test_a_name_twice_is_refused(flags: tuple[str, ...], variable: str, config: str, tmp_path: Path) -> None:
    (tmp_path / "glow.toml").write_text(config)
    single = typer.Typer(add_completion=False)
    single.command()(serve_command)
    given = ("--index-root", "x", "--config", str(tmp_path / "glow.toml"), *flags)
    done = CliRunner().invoke(single, given, env={"GLOW_INDEX": variable})
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "found 'a=Y', but the name 'a' is reserved or used twice; choose another name" in line


def test_names_reach_the_workers_whole(tmp_path: Path) -> None:
    settings = Settings(index_root=tmp_path, index=("a=my  index", "b=c, d=e"))
    again = Settings.from_environment(settings.to_environment())
    assert again.collections == {"a": Path("my  index"), "b": Path("c"), "d": Path("e")}


def test_flags_add_up_clients_have_one_limit_and_a_collection_is_swapped_by_itself(
    toy_model: Path, tmp_path: Path
) -> None:
    books, films, maps = (index_in(tmp_path / name, toy_model, documents(10)) for name in ("a", "b b", "c"))
    flags = (f"--index=films={films.path}", f"--index=maps={maps.path}", "--rate-limit=1", "--rate-burst=5")
    with serving(books.path, *flags) as running, httpx.Client(base_url=running.url) as http:

        def search(path: str, address: str) -> int:
            headers = {"X-Forwarded-For": address}
            return http.post(path, json={"query": "bees"}, headers=headers).status_code

        paths = ("/search", "/v1/films/search", "/v1/maps/search")
        assert [search(path, f"10.0.1.{number}") for number, path in enumerate(paths)] == [200] * 3
        statuses = [search(paths[number % 2], "10.0.0.1") for number in range(16)]
        # The rest of the bound is time: a token came back in each second that this took.
        assert statuses[:5] == [200] * 5 and 5 <= statuses.count(200) <= 7, statuses
        assert set(statuses) == {200, 429}

        clients = count()

        def live(path: str) -> str:
            """As a new client each time, which its own limit does not stop."""
            headers = {"X-Forwarded-For": f"10.2.{next(clients) // 250}.{next(clients) % 250}"}
            return str(http.get(path, headers=headers).json()["index"]["version"])

        first, wanted = films.current(), index_in(films.path, toy_model, documents(12)).current()
        until(lambda: live("/v1/films/info") == wanted)
        assert wanted != first and live("/info") == books.current()
