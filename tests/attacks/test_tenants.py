"""Strangers and keys that open a part, with writes and feedback on.

Nobody gets another rate or mark by writing an address. Keys that open a part write nothing, see nobody's operations, and
teach nothing of what they cannot find.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from glow.query_log import read_feedback, read_query_log
from glow_index_builder.clicks import count_clicks
from tests.attacks.harness import serving
from tests.made_index import documents, made, write
from tests.until import until

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
        return self.ask("POST", "/search", key, {"query": query, "top_k": 40}).json()

    def feedback(self) -> int:
        """How many lines the logs of clicks of all workers have."""
        log = self.folder / "feedback.jsonl"
        return len([*read_feedback(log)]) if log.exists() else 0


def sha(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture(scope="module")
def service(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tenants")
    lines = [
        {**line, "_id": f"{owner}/{number}", "owner": owner}
        for number, (line, owner) in enumerate(zip(documents(20), itertools.cycle(("ann", "bob"))))
    ]
    source = write(folder / "lines.jsonl", lines)
    books, films = (made(toy_model, source, folder / name, index="flat").path for name in ("books", "films"))
    (folder / "tenants.toml").write_text(TENANTS)
    flags = ["--tenants", folder / "tenants.toml", "--index", f"films={films}"]
    flags += ["--api-keys", ",".join(f"{name}:{sha(key)}" for name, key in KEYS.items())]
    flags += ["--feedback-log", folder / "feedback.jsonl", "--query-log", folder / "queries.jsonl"]
    flags += ["--write-key", sha(WRITE_KEY)]
    with serving(books, *map(str, flags)) as running, httpx.Client(base_url=running.url, timeout=30) as http:
        yield Running(http, folder)


WRITES = (
    ("POST", "/documents", {"documents": [DOCUMENT]}),
    ("POST", "/documents/delete", {"ids": ["ann/0", "bob/1"]}),
    ("DELETE", "/documents/ann/0", None),
    ("DELETE", "/documents/bob/1", None),
    ("PUT", "/documents/ann/0", DOCUMENT),
    ("PATCH", "/documents/ann/0", DOCUMENT),
)


@pytest.mark.parametrize("base", ["", "/v1", "/v1/films", "/v1/films/v1"])
def test_an_api_key_writes_nothing(service: Running, base: str) -> None:
    for key, (method, path, body) in itertools.product(KEYS, WRITES):
        for header in ({}, {"Authorization": f"Bearer {WRITE_KEY}"}, {"Authorization": "Bearer guess"}):
            # 404 where a path is none, 401 or 403 where the key does not open it; of two different keys none counts.
            refused = service.ask(method, base + path, key, body, **header)
            assert refused.status_code in (403, 404), (method, base + path, refused.text)
    assert not [path for root in ("books", "films") for path in (service.folder / root).glob(".ingest/log/*")]


def test_an_api_key_sees_no_operation(service: Running) -> None:
    headers = {"X-API-Key": WRITE_KEY}
    document = {**DOCUMENT, "_id": "bob/new", "owner": "bob"}
    written = service.ask("POST", "/documents", "", {"documents": [document]}, **headers)
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
    own, request_id = found["hits"][0]["id"], found["request_id"]
    sent = {"request_id": request_id, "id": own, "kind": "click"}
    assert service.ask("POST", "/v1/films/feedback", "ann", sent).status_code == 403
    assert service.ask("POST", "/feedback", "", sent).status_code == 401
    assert service.ask("POST", "/feedback", "", sent, Authorization="Bearer nobody").status_code == 403
    theirs = service.found("bob", "a note of bees")["hits"][0]["id"]
    assert own.startswith("ann/") and theirs.startswith("bob/")
    responses = [
        service.ask("POST", "/feedback", "ann", {"request_id": request_id, "id": wanted, "kind": kind})
        for wanted in (own, theirs, "bob/999")
        for kind in ("click", "like", "dislike")
    ]
    assert {(each.status_code, each.text) for each in responses} == {(202, responses[0].text)}
    queries = service.folder / "queries.jsonl"
    until(lambda: service.feedback() >= 9 and queries.read_text().count("\n") >= 2)
    assert service.feedback() == 9, "what was refused is not noted"
    clicks = count_clicks(read_query_log(queries), read_feedback(service.folder / "feedback.jsonl"))
    assert {name for (_, name), each in clicks.people.items() if each.chose or each.disliked} == {own}
    assert clicks.counts["unknown"] == 2


def test_a_filter_in_the_request_does_not_undo_that_of_the_key(service: Running) -> None:
    both = {"owner": ["bob", "ann"], "or": [{}, {"owner": "bob"}]}
    neither = {"and": [{"owner": "ann"}, {"not": {"owner": "ann"}}]}
    for key, chosen in itertools.product(("ann", "bob"), ({}, both, {"not": neither})):
        body = {"query": "bees", "filter": chosen, "top_k": 40}
        parameters = httpx.QueryParams({"q": "bees", "filter": json.dumps(chosen), "k": 40})
        for answer in (
            service.ask("POST", "/search", key, body),
            service.ask("GET", f"/search?{parameters}", key),
        ):
            assert {hit["id"][:4] for hit in answer.json()["hits"]} == {f"{key}/"}
    for path in ("/v1/films/search?q=bees", "/v1/films/v1/search?q=bees"):
        assert service.ask("GET", path, "ann").status_code == 403


# Without keys an address is all that tells clients apart. The proxy is 127.0.0.1, which uvicorn trusts unless told
# otherwise; strangers come from 127.0.0.2 and higher.

BURST = 5
ADDRESSES = (
    "203.0.113.{}",
    "203.0.113.{}, 127.0.0.1",
    "127.0.0.1, 203.0.113.{}",
    "203.0.113.{}:8080",
    "[2001:db8:{}::1]",
    "unknown-{}",
    "::ffff:203.0.113.{}",
    '203.0.113.{}"\\r\\nX: y',
    "x" * 4_000 + "{}",
)
FORGED = [{"X-Forwarded-For": text.format(number)} for number, text in enumerate(ADDRESSES)]
FORGED += [{name: "198.51.100.7"} for name in ("X-Real-IP", "True-Client-IP", "CF-Connecting-IP")]
FORGED += [{"Forwarded": f"for=198.51.100.{number};proto=https"} for number in range(3)]


@pytest.fixture(scope="module")
def open_service(toy_index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("addresses")
    flags = ["--rate-limit", "0.001", "--rate-burst", str(BURST)]
    flags += ["--feedback-log", str(folder / "feedback.jsonl")]
    with serving(toy_index, *flags) as running, httpx.Client(base_url=running.url, timeout=30) as http:
        yield Running(http, folder)


def from_(service: Running, address: str) -> httpx.Client:
    """A client at an address of this machine."""
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=service.http.base_url, transport=transport, timeout=30)


def search(client: httpx.Client, headers: dict[str, str], number: int) -> int:
    return client.post("/search", json={"query": f"bees {number}"}, headers=headers).status_code


def test_a_stranger_has_one_rate_whatever_address_he_writes(open_service: Running) -> None:
    with from_(open_service, "127.0.0.2") as client:
        statuses = [search(client, headers, number) for number, headers in enumerate(FORGED * 2)]
    assert statuses == [200] * BURST + [429] * (len(statuses) - BURST)


def test_behind_the_proxy_the_address_that_the_proxy_saw_counts(open_service: Running) -> None:
    """The proxy appends; what stands before its own entry was written by the client."""
    with from_(open_service, "127.0.0.1") as proxy:
        statuses = [
            search(proxy, {"X-Forwarded-For": f"192.0.2.{number}, 198.51.100.200"}, number)
            for number in range(12)
        ]
        assert statuses == [200] * BURST + [429] * (12 - BURST)
        assert search(proxy, {"X-Forwarded-For": "198.51.100.201"}, 99) == 200, "another client has its own"


def test_a_stranger_has_one_mark_in_the_log_of_clicks(open_service: Running) -> None:
    with from_(open_service, "127.0.0.4") as client, from_(open_service, "127.0.0.5") as other:
        request_id = other.post("/search", json={"query": "bees"}).json()["request_id"]
        sent = {"request_id": request_id, "id": "toy/0", "kind": "click"}
        for number, headers in enumerate(FORGED[:BURST]):
            response = client.post("/feedback", json={**sent, "user": f"somebody {number}"}, headers=headers)
            assert response.status_code == 202
        assert other.post("/feedback", json=sent).status_code == 202
    until(lambda: open_service.feedback() == BURST + 1)
    marks = Counter(feedback.source for feedback in read_feedback(open_service.folder / "feedback.jsonl"))
    assert sorted(marks.values()) == [1, BURST]
