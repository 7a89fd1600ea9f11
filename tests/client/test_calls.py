"""What the clients send, and what they read of answers that hold more than they know."""

import asyncio
import inspect
import time
from typing import Any

import httpx
import pytest

import glow.search
from glow.client import AsyncGlowClient, BadRequestError, GlowClient, SearchResult
from glow.client.calls import DEFAULT_CANDIDATES
from glow.contract import HitExplanation, Passage, ReadWord, WordDelta, WordImpact, encode
from glow.errors import ConfigError
from glow.records import Document
from tests.client.conftest import Reply, problem


def test_options_are_sent_as_given_and_those_that_are_none_are_left_out(stub: Any, call: Any) -> None:
    options = {
        "top_k": 3,
        "retriever": "hybrid",
        "filter": {"field": "lang", "eq": "en"},
        "facets": ["lang", {"field": "year", "limit": 3}],
        "highlight": True,
        "explain": {"leave_one_out": True},
        "fields": [],
    }
    call(stub.url + "/", "search", "bees", **options, fusion=None, timeout_ms=None)
    (seen,) = stub.seen
    assert (seen.method, seen.path) == ("POST", "/v1/search")
    assert seen.body == {"query": "bees", **options}
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["user-agent"].startswith("glow-client/")
    assert "authorization" not in seen.headers


def test_the_key_is_sent_and_never_shown(stub: Any, call: Any) -> None:
    call(stub.url, "search", "bees", client={"api_key": "the-key"})
    assert stub.seen[0].headers["authorization"] == "Bearer the-key"
    with GlowClient(stub.url, api_key="the-key") as client:
        assert "the-key" not in repr(client) + repr(vars(client))


def test_every_known_member_is_read_and_unknown_ones_are_passed_over(
    stub: Any, call: Any, answer: Any
) -> None:
    term = {"field": "query", "word": "bees", "tf": 1, "idf": 9.1, "weight": 3.2, "attention": 0.4, "new": 1}
    explanation = {
        "terms": [term],
        "lexical": [{"word": "bees", "impact": 2.5}],
        "leave_one_out": [{"word": "bees", "delta": -0.2}],
        "later": {},
    }
    values = [{"value": "en", "count": 12}]
    answer["facets"] = {"lang": {"values": values, "counted": 200, "approximate": True}}
    answer["query"]["explanation"] = {"terms": [term]}
    answer["hits"][0] |= {
        "fields": {"title": "Bees", "anchor": ["one", "two"]},
        "highlights": {"text": ["… <em>bees</em> …"]},
        "explanation": explanation,
        "passage": {"field": "text", "start": 0, "end": 4, "text": "Bees"},
        "invented": [1],
    }
    answer["invented"] = {"deep": True}
    stub.script = [Reply(answer)]
    result = call(stub.url, "search", "bees")
    hit = result.hits[0]
    assert (hit.values("title"), hit.values("anchor"), hit.values("nope")) == (("Bees",), ("one", "two"), ())
    assert (hit.text("title"), hit.text("anchor"), hit.text("nope")) == ("Bees", "one", "")
    assert hit.highlights == {"text": ("… <em>bees</em> …",)}
    assert hit.passage == Passage("text", 0, 4, "Bees")
    word = ReadWord("query", "bees", 1, 9.1, 3.2, 0.4)
    lexical, deltas = (WordImpact("bees", 2.5),), (WordDelta("bees", -0.2),)
    assert hit.explanation == HitExplanation((word,), lexical=lexical, leave_one_out=deltas)
    assert result.query.explanation.terms == (word,)
    facet = result.facets["lang"]
    assert (facet.values[0].value, facet.values[0].count, facet.counted) == ("en", 12, 200)


def test_a_batch_holds_results_and_problems_in_order(stub: Any, call: Any, answer: Any) -> None:
    item = {name: answer[name] for name in ("degraded", "index", "query", "hits", "timings_ms")}
    bad = {"status": 422, "problem": {"status": 422, "code": "invalid_query", "detail": "empty"}}
    head = {"request_id": "r9", "took_ms": 2.0, "index": answer["index"]}
    stub.script = [Reply({**head, "results": [{"status": 200, **item}, bad]})]
    found = call(stub.url, "search_batch", ["bees", {"query": " ", "top_k": 2}])
    good, refused = found
    assert stub.seen[0].body == {"searches": [{"query": "bees"}, {"query": " ", "top_k": 2}]}
    assert isinstance(good, SearchResult)
    assert (good.request_id, good.took_ms) == ("r9", 2.0)
    assert isinstance(refused, BadRequestError)
    assert (refused.code, refused.detail) == ("invalid_query", "empty")


def test_an_id_stands_in_the_path_whatever_it_holds(stub: Any, call: Any, answer: Any) -> None:
    found = {"id": "a/b c?#é", "fields": {"title": "T"}, "metadata": {"n": 1}, "index": answer["index"]}
    stub.script = [Reply(found)]
    assert call(stub.url, "document", "a/b c?#é") == Document("a/b c?#é", {"title": ("T",)}, {"n": 1})
    assert stub.seen[0].path == "/v1/documents/a/b%20c%3F%23%C3%A9"
    for bad in ("", "..", "a/../b", "half \ud800", "x" * 40_000):
        with pytest.raises(ConfigError, match="cannot be part of a path"):
            call(stub.url, "document", bad)


@pytest.mark.parametrize(("method", "body"), [("write", [{}]), ("delete", ["a"]), ("delete_where", {})])
def test_a_write_waits_only_if_it_is_told_to(stub: Any, call: Any, method: str, body: Any) -> None:
    stub.script = [Reply({"operation": "o", "state": "waiting"})]
    call(stub.url, method, body)
    call(stub.url, method, body, wait_s=2.5)
    assert [seen.path.partition("?")[2] for seen in stub.seen] == ["", "wait=visible&wait_s=2.5"]


def test_a_service_that_is_not_ready_is_an_answer_and_not_an_error(stub: Any, call: Any) -> None:
    stub.script = [problem(503, "not_ready", "still loading")]
    found = call(stub.url, "ready")
    assert (found.is_ready, found.reason) == (False, "still loading")
    assert len(stub.seen) == 1


def page_of(answer: Any, offset: int, size: int) -> Any:
    hits = [{**answer["hits"][0], "id": str(offset + place)} for place in range(size)]
    return {**answer, "hits": hits}


def test_pages_are_asked_for_out_of_the_same_candidates_until_one_is_not_full(
    stub: Any, call: Any, answer: Any
) -> None:
    stub.script = [Reply(page_of(answer, offset, size)) for offset, size in ((0, 2), (2, 2), (4, 1))]
    hits = call(stub.url, "search_hits", "bees", page_size=2, limit=120, fields=[])
    assert [hit.id for hit in hits] == ["0", "1", "2", "3", "4"]
    sent = [(seen.body["offset"], seen.body["top_k"], seen.body["candidates"]) for seen in stub.seen]
    assert sent == [(0, 2, 120), (2, 2, 120), (4, 2, 120)]
    assert all(seen.body["fields"] == [] for seen in stub.seen)


def test_pages_end_at_the_limit_and_begin_at_the_offset(stub: Any, call: Any, answer: Any) -> None:
    stub.script = [Reply(page_of(answer, 5, 2)), Reply(page_of(answer, 7, 1))]
    pages = call(stub.url, "search_pages", "bees", page_size=2, limit=3, offset=5)
    assert [[hit.id for hit in page.hits] for page in pages] == [["5", "6"], ["7"]]
    sent = [(seen.body["offset"], seen.body["top_k"]) for seen in stub.seen]
    assert sent == [(5, 2), (7, 1)]
    with pytest.raises(ConfigError, match="page_size"):
        call(stub.url, "search_pages", "bees", page_size=0)


def test_a_walk_ranks_as_a_plain_search_does(stub: Any, call: Any, answer: Any) -> None:
    """Fewer candidates than the service's default would make another ranking of vectors and words."""
    assert glow.search.DEFAULT_CANDIDATES == DEFAULT_CANDIDATES
    stub.script = [Reply(page_of(answer, offset, size)) for offset, size in ((0, 3), (3, 2), (0, 5))]
    call(stub.url, "search_hits", "bees", page_size=3, limit=5)
    assert all("candidates" not in seen.body for seen in stub.seen)
    call(stub.url, "search_hits", "bees", page_size=10, limit=5, candidates=40)
    assert [seen.body.get("candidates") for seen in stub.seen] == [None, None, 40]


def test_the_next_page_is_not_asked_for_before_it_is_wanted(stub: Any, answer: Any) -> None:
    stub.script = [Reply(page_of(answer, 0, 2))]
    with GlowClient(stub.url) as client:
        pages = client.search_pages("bees", page_size=2)
        assert not stub.seen
        next(pages)
        assert len(stub.seen) == 1


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://x", "http://", "http://x/?a=1", "http://x:port"]
)
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        GlowClient(url)


@pytest.mark.parametrize("key", ["", "two words", "ключ", "a\nb"])
def test_what_cannot_be_a_key_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="API key") as caught:
        GlowClient("http://127.0.0.1:1", api_key=key)
    assert not key or key not in str(caught.value)


def test_a_client_of_the_callers_own_is_used_and_left_open(stub: Any) -> None:
    with httpx.Client(headers={"X-Mine": "yes"}) as mine:
        with GlowClient(stub.url, http=mine) as client:
            client.search("bees")
        assert not mine.is_closed
    assert stub.seen[0].headers["x-mine"] == "yes"


def test_a_cancelled_task_closes_its_connection(stub: Any, answer: Any) -> None:
    stub.script = [Reply(answer, after_s=3.0)]

    async def run() -> None:
        async with AsyncGlowClient(stub.url) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.search("bees")

    started = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - started < 2


def test_both_clients_have_the_same_documented_methods() -> None:
    for name in (name for name in dir(GlowClient) if not name.startswith("_")):
        for kind in (GlowClient, AsyncGlowClient):
            method = getattr(kind, name)
            assert method.__doc__ and method.__name__ == name
            assert next(iter(inspect.signature(method).parameters)) == "self"
            bound = getattr(kind("http://127.0.0.1:1"), name)
            assert (bound.__doc__, bound.__name__) == (method.__doc__, name)


def test_a_text_of_another_type_is_a_text_in_json() -> None:
    class Word(str):
        """As a word that knows how it was spelled."""

    assert encode(Passage("text", 0, 4, Word("bees"))) == b'{"field":"text","start":0,"end":4,"text":"bees"}'
    assert encode({Word("bees"): [Word("hive")]}) == b'{"bees":["hive"]}'
    with pytest.raises(TypeError, match="object is not a value of JSON"):
        encode([object()])
