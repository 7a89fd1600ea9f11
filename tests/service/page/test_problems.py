"""The search page: a key, examples on the start page, and what it says where a search fails."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.asking import QUERY

KEY = "the-key-of-this-test"


@pytest.fixture(scope="module")
def guarded_url(serve_app: Any, make_app: Any, full_index: Path) -> Iterator[str]:
    """A service that needs a key."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    with serve_app(make_app(full_index, api_keys=f"tester:{digest}")) as client:
        yield str(client.base_url)


@pytest.fixture
def guarded(open_page: Any, guarded_url: str) -> Iterator[Any]:
    """A window on it."""
    with open_page(guarded_url) as tab:
        tab.expected += ["401", "403"]
        yield tab


def enter_key(tab: Any, key: str) -> None:
    tab.page.get_by_label("Key", exact=True).fill(key)
    tab.page.keyboard.press("Enter")


def test_a_key_is_asked_for_replaced_where_it_is_wrong_and_then_used(guarded: Any) -> None:
    page = guarded.page
    guarded.open()
    assert "needs a key" in guarded.alert() and guarded.focus() == "key"
    page.keyboard.type("a/b")
    assert page.get_by_label("Key", exact=True).input_value() == "a/b"
    guarded.open(QUERY)
    assert "needs a key" in guarded.alert() and guarded.focus() == "key"
    assert not page.get_by_role("button", name="Try again").is_visible()
    keys: set[str | None] = set()
    page.on("request", lambda each: each.url.endswith(".svg") or keys.add(each.headers.get("authorization")))
    for text in ("ключ", "two words", "тhe-key"):
        enter_key(guarded, text)
        page.get_by_text("That is no key").wait_for()
    enter_key(guarded, "nonsense")
    page.get_by_text("The key was refused").wait_for()
    assert page.evaluate("sessionStorage.length") == 0 and guarded.focus() == "key"
    enter_key(guarded, f" {KEY} ")
    assert guarded.titles()[0] == "Bees"
    page.locator("#about", has_text="50 documents").wait_for()
    assert not page.locator("#problem").is_visible()
    guarded.search("honey")
    guarded.shown("honey")
    assert keys == {"Bearer nonsense", f"Bearer {KEY}"}, "what cannot be a key is not sent"


def test_the_key_stays_in_its_tab_and_nowhere_else(guarded: Any) -> None:
    page = guarded.page
    guarded.open("bees")
    enter_key(guarded, KEY)
    guarded.titles()
    page.reload()
    guarded.titles()
    kept = "[Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]"
    session, local, cookie, address = page.evaluate(kept)
    assert (session, local, cookie) == ([KEY], [], "") and KEY not in address
    assert KEY not in page.content() and page.get_by_label("Key", exact=True).input_value() == ""
    other = page.context.new_page()
    other.goto("/?q=bees")
    other.locator("#problem", has_text="needs a key").wait_for()


def test_it_begins_with_queries_that_led_to_documents_else_headings_drawn_anew(
    tab: Any, toy_corpus: Path
) -> None:
    page = tab.page
    fields: dict[str, Any] = {"clicked_queries": []}
    tab.change("**/search", lambda body: [hit["fields"].update(fields) for hit in body["hits"]])
    examples = page.locator("#examples a")

    def drawn() -> list[str]:
        tab.open()
        examples.first.wait_for()
        return examples.all_inner_texts()

    titles = {json.loads(line)["title"] for line in toy_corpus.read_text(encoding="utf-8").splitlines()}
    draws = [drawn() for _ in range(3)]
    assert all(1 <= len(draw) <= 4 for draw in draws) and 4 < len(set().union(*draws)) <= len(titles)
    assert set().union(*draws) <= titles
    assert len({str(body["vector"]) for body in tab.sent}) == 3
    fields["clicked_queries"] = ["what do bees eat", "x" * 61]
    assert drawn() == ["what do bees eat"]
    examples.first.click()
    assert tab.titles()
    assert page.get_by_label("Search the documents").input_value() == "what do bees eat"
    assert page.locator("#examples").is_hidden()


def test_a_refusal_and_a_lost_connection_say_what_to_do(tab: Any) -> None:
    page = tab.page
    tab.expected += ["422", "ERR_INTERNET_DISCONNECTED"]
    tab.open()
    tab.search("x" * 10_001)
    text = tab.alert()
    assert page.locator("#problem").get_attribute("role") == "alert"
    assert all(part in text for part in ("too long", "at most 10000", "Change the query"))
    again = page.get_by_role("button", name="Try again")
    assert not again.is_visible()
    tab.search("honey")
    tab.shown("honey")
    assert not page.locator("#problem").is_visible()
    page.context.set_offline(True)
    tab.search("bees")
    text = tab.alert()
    assert "cannot be reached" in text and "Check that it runs" in text
    assert not page.locator("#found").is_visible()
    page.context.set_offline(False)
    again.click()
    tab.shown("bees")
    assert not page.locator("#problem").is_visible()


def test_a_service_that_is_not_ready_is_asked_again_by_itself(
    open_page: Any, serve: Any, tmp_path: Path
) -> None:
    with serve(tmp_path, wait=False) as http, open_page(http.base_url) as tab:
        tab.expected.append("503")
        tab.open("bees")
        assert "Not ready yet" in tab.alert()
        with tab.page.expect_response("**/info") as asked:
            tab.page.locator("#countdown", has_text=re.compile(r"Trying again in \d+ s")).wait_for()
        assert asked.value.status == 503


def test_too_many_searches_count_down_and_then_go_on_by_themselves(open_page: Any, serve: Any) -> None:
    with serve(rate_limit=0.5, rate_burst=2) as http, open_page(http.base_url) as tab:
        page = tab.page
        tab.expected.append("429")
        assert tab.titles("bees")  # two requests: /info and the search
        tab.search("honey")
        assert "Too many requests" in tab.alert()
        page.locator("#problem").get_by_text(re.compile(r"Trying again in \d+ s")).wait_for()
        assert page.get_by_role("button", name="Try again").is_visible()
        tab.shown("honey")
        assert not page.locator("#problem").is_visible()
        busy = {
            "status": 429,
            "headers": {"Retry-After": "500"},
            "json": {"title": "Too many", "detail": "Wait."},
        }
        page.route("**/search", lambda route: route.fulfill(**busy))
        tab.search("water")
        assert "Wait 9 minutes" in tab.alert(), "a long wait is told and not counted down"
        assert not page.locator("#countdown").is_visible()


def test_docs_send_a_key_once_it_is_given(guarded: Any) -> None:
    page = guarded.page
    page.goto("/docs#get_info")
    info = page.locator("#get_info")
    info.get_by_role("button", name="Send").click()
    info.locator("pre", has_text="401").wait_for()
    page.get_by_label("Key, where").fill(KEY)
    page.get_by_role("button", name="Use key").click()
    page.get_by_text("The key is used from now on.").wait_for()
    info.get_by_role("button", name="Send").click()
    info.locator("pre", has_text="200").wait_for()
