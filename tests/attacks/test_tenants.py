"""Keys that open a part, with writes and feedback on: they write nothing, see nobody's operations, and teach nothing of what they cannot find."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from glow.query_log import read_feedback, read_query_log
from glow_index_builder.clicks import count_clicks
from tests.attacks.harness import serving, until
from tests.made_index import documents, made, write

KEYS = {name: f"key-of-{name}" for name in ("ann", "bob", "ops")}
WRITE_KEY = "key-for-writing"
TENANTS = """
[ann]
collections = ["default"]
filter = {field = "owner", eq = "ann"}
[bob]
filter = {owner = "bob"}
[ops]
"""
DOCUMENT = {"_id": "ann/0", "title": "replaced", "text": "replaced", "owner": "ann"}


@dataclass
class Running:
    """The service, and where it writes."""

    http: httpx.Client
    folder: Path

    def ask(
        self, method: str, path: str, key: str = "", body: object = None, **headers: str
    ) -> httpx.Response:
        """One request, with the API key of a name."""
        keys = {"X-API-Key": KEYS[key]} if key else {}
        return self.http.request(method, path, json=body, headers={**keys, **headers})

    def found(self, key: str, query: str) -> dict:
        """What a key finds."""
        return self.ask("POST", "/search", key, {"query": query, "top_k": 40}).json()


def sha(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture(scope="module")
def service(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tenants")
    lines = [
        {**line, "_id": f"{owner}/{number}", "owner": owner}
        for number, (line, owner) in enumerate(zip(documents(20), itertools.cycle(("ann", "bob"))))
    ]
    root = made(toy_model, write(folder / "books.jsonl", lines), folder / "books", index="flat")
    films = made(toy_model, write(folder / "films.jsonl", lines), folder / "films", index="flat")
    (folder / "tenants.toml").write_text(TENANTS)
    flags = [
        "--tenants",
        str(folder / "tenants.toml"),
        "--index",
        f"films={films.path}",
        "--write-key",
        sha(WRITE_KEY),
    ]
    flags += ["--api-keys", ",".join(f"{name}:{sha(key)}" for name, key in KEYS.items())]
    flags += ["--feedback-log", str(folder / "feedback.jsonl"), "--query-log", str(folder / "queries.jsonl")]
    with serving(root.path, *flags) as running, httpx.Client(base_url=running.url, timeout=30) as http:
        yield Running(http, folder)


WRITES = (
    ("POST", "/documents", {"documents": [DOCUMENT]}),
    ("POST", "/documents/delete", {"ids": ["ann/0", "bob/1"]}),
    ("DELETE", "/documents/ann/0", None),
    ("DELETE", "/documents/bob/1", None),
    ("PUT", "/documents/ann/0", DOCUMENT),
    ("PATCH", "/documents/ann/0", DOCUMENT),
)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("base", ["", "/v1", "/v1/films", "/v1/films/v1"])
def test_an_api_key_writes_nothing(service: Running, key: str, base: str) -> None:
    for method, path, body in WRITES:
        refused = service.ask(method, base + path, key, body)
        # 404 where a path is none, 401 or 403 where the key does not open it.
        assert refused.status_code in (403, 404), (method, base + path, refused.text)
        for header in ({"Authorization": f"Bearer {WRITE_KEY}"}, {"Authorization": "Bearer guess"}):
            both = service.ask(method, base + path, key, body, **header)
            assert both.status_code in (403, 404), "of two different keys none counts"
    assert not [path for root in ("books", "films") for path in (service.folder / root).glob(".ingest/log/*")]
    assert service.ask("GET", "/documents/ann/0", "ops").json()["fields"]["title"] != ["replaced"]


def test_an_api_key_sees_no_operation(service: Running) -> None:
    headers = {"X-API-Key": WRITE_KEY}
    written = service.ask(
        "POST", "/documents", "", {"documents": [{**DOCUMENT, "_id": "bob/new", "owner": "bob"}]}, **headers
    )
    assert written.status_code == 202, written.text
    operation = written.json()["operation"]
    assert service.ask("GET", f"/operations/{operation}", "", None, **headers).status_code == 200
    for key, base in itertools.product(KEYS, ("", "/v1", "/v1/films")):
        for wanted in (operation, operation[:-1] + "x", "../" + operation, "%2e%2e%2f" + operation):
            refused = service.ask("GET", f"{base}/operations/{wanted}", key)
            assert refused.status_code in (403, 404)
            assert "bob" not in refused.text


def test_feedback_says_nothing_of_documents_that_the_key_cannot_find_and_teaches_nothing(
    service: Running,
) -> None:
    found = service.found("ann", "a note of bees")
    (own, *_), request_id = [hit["id"] for hit in found["hits"]], found["request_id"]
    theirs = service.found("bob", "a note of bees")["hits"][0]["id"]
    assert own.startswith("ann/") and theirs.startswith("bob/")
    responses = [
        service.ask("POST", "/feedback", "ann", {"request_id": request_id, "id": wanted, "kind": kind})
        for wanted in (own, theirs, "bob/999")
        for kind in ("click", "like", "dislike")
    ]
    assert {(each.status_code, each.text) for each in responses} == {(202, responses[0].text)}
    feedback = service.folder / "feedback.jsonl"
    assert until(lambda: feedback.exists() and feedback.read_text().count("\n") == 9, 20)
    assert until(lambda: (service.folder / "queries.jsonl").read_text().count("\n") >= 2, 20)
    clicks = count_clicks(read_query_log(service.folder / "queries.jsonl"), read_feedback(feedback))
    assert {name for (_, name), each in clicks.people.items() if each.chose or each.disliked} == {own}
    assert clicks.counts["unknown"] == 2


def test_feedback_needs_a_key_that_opens_the_collection(service: Running) -> None:
    sent = {"request_id": service.found("ann", "bees")["request_id"], "id": "ann/0", "kind": "click"}
    lines = (
        (service.folder / "feedback.jsonl").read_text()
        if (service.folder / "feedback.jsonl").exists()
        else ""
    )
    assert service.ask("POST", "/v1/films/feedback", "ann", sent).status_code == 403
    assert service.ask("POST", "/feedback", "", sent).status_code == 401
    assert service.ask("POST", "/feedback", "", sent, Authorization="Bearer nobody").status_code == 403
    log = service.folder / "feedback.jsonl"
    assert (log.read_text() if log.exists() else "") == lines


def test_a_filter_in_the_request_does_not_undo_that_of_the_key(service: Running) -> None:
    filters = (
        {"or": [{"field": "owner", "eq": "bob"}]},
        {"not": {"field": "owner", "eq": "ann"}},
        {"or": [{"and": []}, {"field": "owner", "exists": True}]},
        {"not": {"and": [{"field": "owner", "eq": "ann"}, {"not": {"field": "owner", "eq": "ann"}}]}},
        {"and": []},
        {},
        {"owner": ["bob", "ann"], "or": [{}, {"owner": "bob"}]},
    )
    for chosen, key in itertools.product(filters, ("ann", "bob")):
        body = {"query": "bees", "filter": chosen, "top_k": 40}
        parameters = httpx.QueryParams({"q": "bees", "filter": json.dumps(chosen), "k": 40})
        for answer in (
            service.ask("POST", "/search", key, body),
            service.ask("GET", f"/search?{parameters}", key),
        ):
            assert answer.status_code == 200
            assert {hit["id"][:4] for hit in answer.json()["hits"]} <= {f"{key}/"}, json.dumps(chosen)
    for path in ("/v1/films/search?q=bees", "/v1/films/v1/search?q=bees"):
        assert service.ask("GET", path, "ann").status_code == 403
