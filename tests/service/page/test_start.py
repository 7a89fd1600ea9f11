"""The search page: a key, examples on the start page, and failures."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.service.asking import Serve

KEY = "the-key-of-this-test"


@pytest.fixture
def guarded(open_page: Callable[..., Any], serve: Serve) -> Iterator[Any]:
    """A window on a service that needs a key."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    with serve(api_keys=f"tester:{digest}") as client, open_page(str(client.base_url)) as tab:
        tab.expected += ["401", "403"]
        yield tab


def enter_key(page: Page, key: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.keyboard.press("Enter")


def test_a_service_that_needs_a_key_asks_for_it_and_then_searches(guarded: Any) -> None:
    guarded.page.goto("/?q=how do bees find home")
    alert = guarded.page.locator("#problem")
    alert.wait_for()
    assert "needs a key" in alert.inner_text()
    assert not guarded.page.get_by_role("button", name="Try again").is_visible()
    assert guarded.page.evaluate("document.activeElement.id") == "key"
    with guarded.page.expect_request("**/search") as asked:
        enter_key(guarded.page, f" {KEY} ")
    assert guarded.titles()[0] == "Bees"
    assert asked.value.headers["authorization"] == f"Bearer {KEY}"
    assert not alert.is_visible()
    guarded.page.locator("#about", has_text="50 documents").wait_for()
    guarded.search("honey")
    guarded.page.locator("#terms .word", has_text="honey").wait_for(state="attached")


def test_the_key_is_asked_for_before_the_first_search_and_can_hold_a_slash(guarded: Any) -> None:
    guarded.page.goto("/")
    guarded.page.locator("#problem").wait_for()
    assert guarded.page.evaluate("document.activeElement.id") == "key"
    guarded.page.keyboard.type("a/b")
    assert guarded.page.get_by_label("Key", exact=True).input_value() == "a/b"


def test_the_key_stays_in_its_tab_and_nowhere_else(guarded: Any) -> None:
    guarded.page.goto("/?q=bees")
    enter_key(guarded.page, KEY)
    guarded.titles()
    guarded.page.reload()
    guarded.titles()
    kept = "[Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]"
    session, local, cookie, address = guarded.page.evaluate(kept)
    assert (session, local, cookie) == ([KEY], [], "") and KEY not in address
    assert KEY not in guarded.page.content()
    assert guarded.page.get_by_label("Key", exact=True).input_value() == ""
    other = guarded.page.context.new_page()
    other.goto("/?q=bees")
    other.locator("#problem").wait_for()
    assert "needs a key" in other.locator("#problem").inner_text()


def test_a_wrong_key_is_refused_forgotten_and_can_be_replaced(guarded: Any) -> None:
    guarded.page.goto("/?q=bees")
    enter_key(guarded.page, "nonsense")
    alert = guarded.page.locator("#problem")
    alert.get_by_text("The key was refused").wait_for()
    assert guarded.page.evaluate("sessionStorage.length") == 0
    assert guarded.page.evaluate("document.activeElement.id") == "key"
    enter_key(guarded.page, KEY)
    guarded.titles()
    assert not alert.is_visible()


@pytest.mark.parametrize("key", ["ключ", "two words", "тhe-key"])
def test_what_cannot_be_a_key_is_not_sent(guarded: Any, key: str) -> None:
    guarded.page.goto("/?q=bees")
    guarded.page.locator("#problem").wait_for()
    asked: list[str] = []
    guarded.page.on("request", lambda request: asked.append(request.url))
    enter_key(guarded.page, key)
    guarded.page.locator("#problem").get_by_text("That is no key").wait_for()
    assert asked == []
    enter_key(guarded.page, KEY)
    guarded.titles()


# Questions to begin with: of a setting, else clicked queries, else headings.


def test_it_begins_with_questions_of_the_index(tab: Any) -> None:
    tab.open()
    examples = tab.page.locator("#examples a")
    examples.first.wait_for()
    assert 1 <= examples.count() <= 4
    question = examples.first.inner_text()
    examples.first.click()
    assert tab.titles()
    assert tab.page.get_by_label("Search the documents").input_value() == question
    assert tab.page.locator("#examples").is_hidden()


def drawn(tab: Any, **fields: Any) -> set[str]:
    """The examples of the page if each document that it draws has these fields."""
    tab.change("**/search", lambda body: [hit["fields"].update(fields) for hit in body["hits"]])
    tab.open()
    tab.page.locator("#examples a").first.wait_for()
    return set(tab.page.locator("#examples a").all_inner_texts())


def test_queries_that_led_to_documents_come_before_headings(tab: Any) -> None:
    assert drawn(tab, clicked_queries=["what do bees eat", "x" * 61]) == {"what do bees eat"}


def test_headings_are_drawn_anew_each_time(tab: Any, toy_corpus: Path) -> None:
    titles = {json.loads(line)["title"] for line in toy_corpus.read_text(encoding="utf-8").splitlines()}
    seen, sent = set[str](), set[str]()
    tab.page.on("request", lambda request: sent.add(request.post_data) if request.post_data else None)
    for _ in range(4):
        seen |= drawn(tab, clicked_queries=[])
    assert len(seen) > 4 and seen <= titles and len(sent) == 4


def test_a_setting_says_what_to_begin_with(open_page: Any, run_server: Any, toy_index: Path) -> None:
    flags = ("--page-examples", "do bees sleep | why is the sea salty|")
    with run_server("--index-root", toy_index, *flags) as server, open_page(server.url) as tab:
        tab.open()
        tab.page.locator("#examples a").first.wait_for()
        assert tab.page.locator("#examples a").all_inner_texts() == ["do bees sleep", "why is the sea salty"]


# What the page says where a search fails: refusals, services that are gone, busy or not ready.


def test_a_refusal_says_what_to_do(tab: Any) -> None:
    tab.expected.append("422")
    tab.open()
    tab.search("x" * 10_001)
    alert = tab.alert()
    assert alert.get_attribute("role") == "alert"
    for part in ("too long", "at most 10000", "Change the query"):
        assert part in alert.inner_text()
    assert not tab.page.get_by_role("button", name="Try again").is_visible()
    tab.search("bees")
    assert tab.titles()
    assert not alert.is_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_connection_that_is_gone_is_reported_and_can_be_tried_again(
    open_page: Callable[..., Any], server: Any, width: int
) -> None:
    with open_page(server.url, width) as tab:
        tab.expected.append("ERR_INTERNET_DISCONNECTED")
        tab.open()
        tab.page.context.set_offline(True)
        tab.search("bees")
        assert "cannot be reached" in tab.alert().inner_text()
        tab.page.context.set_offline(False)
        tab.page.get_by_role("button", name="Try again").click()
        assert tab.titles()
        assert not tab.page.locator("#problem").is_visible()


def test_a_service_that_died_between_two_searches_is_reported(
    open_page: Callable[..., Any], run_server: Callable[..., Any], toy_index: Path
) -> None:
    with run_server("--index-root", toy_index) as server, open_page(server.url) as tab:
        tab.expected.append("ERR_CONNECTION_REFUSED")
        tab.found("bees")
        server.stop()
        tab.search("honey")
        assert all(part in tab.alert().inner_text() for part in ("cannot be reached", "Check that it runs"))
        assert not tab.page.locator("#found").is_visible()


def test_a_service_that_is_not_ready_is_asked_again_by_itself(
    open_page: Callable[..., Any], serve: Serve, tmp_path: Path
) -> None:
    with serve(tmp_path, wait=False) as http, open_page(str(http.base_url)) as tab:
        tab.expected.append("503")
        tab.open("bees")
        assert "Not ready yet" in tab.alert().inner_text()
        with tab.page.expect_response("**/info") as asked:
            tab.page.locator("#countdown", has_text=re.compile(r"Trying again in \d+ s")).wait_for()
        assert asked.value.status == 503


def test_too_many_searches_count_down_and_then_go_on_by_themselves(open_page: Any, serve: Serve) -> None:
    with serve(rate_limit=0.5, rate_burst=2) as http, open_page(str(http.base_url)) as tab:
        tab.expected.append("429")
        tab.open("bees")  # two requests: /info and the search
        tab.titles()
        tab.search("honey")
        alert = tab.alert()
        assert "Too many requests" in alert.inner_text()
        alert.get_by_text(re.compile(r"Trying again in \d+ s")).wait_for()
        assert tab.page.get_by_role("button", name="Try again").is_visible()
        tab.page.locator("#terms .word", has_text="honey").wait_for(state="attached")
        assert not alert.is_visible()


def test_a_long_wait_is_told_and_not_counted_down(open_page: Callable[..., Any], serve: Serve) -> None:
    with serve(rate_limit=0.002, rate_burst=2) as http, open_page(str(http.base_url)) as tab:
        tab.expected.append("429")
        tab.found("bees")
        tab.search("honey")
        assert re.search(r"Wait \d minutes", tab.alert().inner_text())
        assert not tab.page.locator("#countdown").is_visible()
