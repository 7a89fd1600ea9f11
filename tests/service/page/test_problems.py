"""The search page: a key, examples on the start page, and what it says where a search fails."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from tests.service.asking import QUERY

KEY = "the-key-of-this-test"


def test_a_key_is_asked_for_replaced_where_it_is_wrong_and_stays_in_its_tab(
    open_page: Any, serve: Any, full_index: Path
) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    with serve(full_index, api_keys=f"tester:{digest}") as http, open_page(http.base_url) as tab:
        page, field = tab.page, tab.page.get_by_label("API key", exact=True)
        tab.expected += ["401", "403"]
        tab.open()
        assert "needs a key" in tab.alert() and tab.focus() == "key"
        page.keyboard.type("a/b")
        assert field.input_value() == "a/b"
        tab.open(QUERY)
        assert "needs a key" in tab.alert() and tab.focus() == "key"
        assert not page.get_by_role("button", name="Try again").is_visible()
        keys: set[str | None] = set()
        page.on(
            "request", lambda each: each.url.endswith(".svg") or keys.add(each.headers.get("authorization"))
        )
        for text in ("ключ", "two words", "тhe-key"):
            field.fill(text)
            page.keyboard.press("Enter")
            page.get_by_text("That is no key").wait_for()
        field.fill("nonsense")
        page.keyboard.press("Enter")
        page.get_by_text("The key was refused").wait_for()
        assert page.evaluate("sessionStorage.length") == 0 and tab.focus() == "key"
        field.fill(f" {KEY} ")
        page.keyboard.press("Enter")
        assert tab.titles()[0] == "Bees"
        page.locator("#about", has_text="50 documents").wait_for()
        assert not page.locator("#problem").is_visible()
        assert keys == {"Bearer nonsense", f"Bearer {KEY}"}, "what cannot be a key is not sent"
        page.reload()
        assert tab.titles()
        kept = "[Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]"
        session, local, cookie, address = page.evaluate(kept)
        assert (session, local, cookie) == ([KEY], [], "") and KEY not in address + page.content()
        assert field.input_value() == ""
        other = page.context.new_page()
        other.goto("/?q=bees")
        other.locator("#problem", has_text="needs a key").wait_for()
        other.goto("/docs#get_info")
        send = other.locator("#get_info").get_by_role("button", name="Send")
        send.click()
        other.locator("#get_info pre", has_text="401").wait_for()
        other.get_by_label("API key (if required)").fill(KEY)
        other.get_by_role("button", name="Use key").click()
        other.get_by_text("The key is used from now on.").wait_for()
        send.click()
        other.locator("#get_info pre", has_text="200").wait_for()


def test_it_begins_with_queries_that_led_to_documents_else_headings_drawn_anew(
    tab: Any, toy_corpus: Path
) -> None:
    page, examples = tab.page, tab.page.locator("#examples a")
    clicked: list[str] = []
    tab.change(
        "**/search", lambda body: [hit["fields"].update(clicked_queries=clicked) for hit in body["hits"]]
    )
    titles = {json.loads(line)["title"] for line in toy_corpus.read_text(encoding="utf-8").splitlines()}
    seen = set[str]()
    for _ in range(3):
        tab.open()
        examples.first.wait_for()
        assert 1 <= examples.count() <= 4
        seen |= set(examples.all_inner_texts())
    assert seen <= titles and len(seen) > 4 and len({str(body["vector"]) for body in tab.sent}) == 3
    clicked += ["what do bees eat", "x" * 61]
    tab.open()
    examples.first.wait_for()
    assert examples.all_inner_texts() == ["what do bees eat"]
    examples.first.click()
    tab.shown("what do bees eat")
    assert page.locator("#examples").is_hidden()
    assert page.get_by_label("Search the documents").input_value() == "what do bees eat"


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


def test_a_service_that_is_not_ready_or_busy_is_asked_again_by_itself(
    open_page: Any, serve: Any, tmp_path: Path
) -> None:
    with serve(tmp_path, wait=False) as http, open_page(http.base_url) as tab:
        tab.expected.append("503")
        tab.open("bees")
        assert "Not ready yet" in tab.alert()
        with tab.page.expect_response("**/info") as asked:
            tab.page.get_by_text(re.compile(r"Trying again in \d+ s")).wait_for()
        assert asked.value.status == 503
    with serve(rate_limit=0.5, rate_burst=2) as http, open_page(http.base_url) as tab:
        tab.expected.append("429")
        assert tab.titles("bees")  # two requests: /info and the search
        tab.search("honey")
        assert "Too many requests" in tab.alert()
        tab.page.get_by_text(re.compile(r"Trying again in \d+ s")).wait_for()
        assert tab.page.get_by_role("button", name="Try again").is_visible()
        tab.shown("honey")
        assert not tab.page.locator("#problem").is_visible()
        busy = {"status": 429, "headers": {"Retry-After": "500"}, "json": {"detail": "Wait."}}
        tab.page.route("**/search", lambda route: route.fulfill(**busy))
        tab.search("water")
        assert "Wait 9 minutes" in tab.alert(), "a long wait is told and not counted down"
        assert not tab.page.locator("#countdown").is_visible()
