"""The search page in a real, headless Chromium (`GLOW_CHROMIUM`, default /usr/bin/chromium)."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, sync_playwright

from service.app import create_app
from service.settings import Settings

CHROMIUM = Path(os.environ.get("GLOW_CHROMIUM", "/usr/bin/chromium"))
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WAIT_MS = 10_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.is_file():
        pytest.skip(f"no Chromium at {CHROMIUM}; set GLOW_CHROMIUM to one")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser, server: Any) -> Iterator[Page]:
    """A page that fails its test when a script errs or anything is asked of another server."""
    context = browser.new_context(viewport={"width": 1000, "height": 800}, base_url=server.url)
    context.set_default_timeout(WAIT_MS)
    tab = context.new_page()
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    tab.on(
        "request", lambda request: None if request.url.startswith(server.url) else wrong.append(request.url)
    )
    tab.wrong = wrong  # type: ignore[attr-defined]
    yield tab
    context.close()
    assert wrong == []


def search(page: Page, query: str) -> None:
    page.get_by_label("Search the documents").fill(query)
    page.keyboard.press("Enter")


def titles(page: Page) -> list[str]:
    page.locator("#hits li").first.wait_for()
    return page.locator("#hits h3").all_inner_texts()


def test_a_search_from_the_keyboard_shows_results_weights_and_timings(page: Page) -> None:
    page.goto("/")
    assert "50 documents" in page.locator("#about").inner_text()
    page.locator("body").click()
    page.keyboard.press("/")
    page.keyboard.type("how do bees find their way home")
    page.keyboard.press("Enter")
    assert titles(page)[0] == "Bees"
    assert page.locator("#hits li").count() == 10
    assert (
        page.locator("#hits li").first.locator("a").get_attribute("href")
        == "https://www.example.org/nature/bees0.html"
    )
    assert "sun" in page.locator("#hits .snippet").first.inner_text()
    assert [word.lower() for word in page.locator("#hits mark").all_inner_texts()[:2]] == ["bees", "find"]
    for stage in ("queue", "preprocess", "encode", "search", "fetch"):
        assert stage in page.locator("#timings").inner_text()
    assert page.title() == "how do bees find their way home · GLOW"
    assert page.get_by_role("status").inner_text() == "10 results"


def test_bars_are_as_high_as_the_weights(page: Page) -> None:
    page.goto("/?q=how do bees find the way home")
    titles(page)
    page.wait_for_timeout(300)  # the bars grow
    words = page.locator("#terms .word").all_inner_texts()
    assert words == ["how", "do", "bees", "find", "the", "way", "home"]
    weights = [float(text) for text in page.locator("#terms .weight").all_inner_texts()]
    heights = page.eval_on_selector_all(
        "#terms .bar", "bars => bars.map(bar => bar.getBoundingClientRect().height)"
    )
    for weight, height in zip(weights, heights, strict=True):
        assert height == pytest.approx(max(heights) * weight / max(weights), abs=1)


def test_the_address_keeps_the_query(page: Page) -> None:
    coffee = "Coffee beans are roasted seeds; a finer grind gives a stronger cup."
    page.goto(f"/?q={quote(coffee)}")
    assert titles(page)[0] == "Coffee"
    search(page, "honey bees & co")
    page.wait_for_url("**/?q=honey%20bees%20%26%20co")
    page.locator("#terms .word", has_text="honey").wait_for()
    page.go_back()
    page.locator("#terms .word", has_text="seeds").wait_for()
    assert page.get_by_label("Search the documents").input_value() == coffee


def test_more_results_are_added_below(page: Page) -> None:
    page.goto("/?q=water")
    before = titles(page)
    page.get_by_role("button", name="More results").click()
    page.locator("#hits li").nth(19).wait_for()
    after = titles(page)
    assert after[:10] == before
    assert len(set(after)) == 20


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(page: Page, scheme: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme=scheme)
    page.goto("/?q=" + "unbreakable" * 12 + " how do bees find the way home when the sun is low")
    titles(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_refusal_says_what_to_do(page: Page) -> None:
    page.goto("/")
    search(page, "x" * 2_001)
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "too long" in alert.inner_text()
    assert "at most 2000" in alert.inner_text()
    assert "Change the query" in alert.inner_text()
    assert not page.get_by_role("button", name="Try again").is_visible()
    search(page, "bees")
    assert titles(page)
    assert not alert.is_visible()
    page.wrong[:] = [text for text in page.wrong if "422" not in text]  # type: ignore[attr-defined]


def test_a_service_that_is_gone_is_reported_and_can_be_tried_again(page: Page) -> None:
    page.goto("/")
    page.context.set_offline(True)
    search(page, "bees")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "cannot be reached" in alert.inner_text()
    page.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    assert titles(page)
    page.wrong[:] = [text for text in page.wrong if "ERR_INTERNET_DISCONNECTED" not in text]  # type: ignore[attr-defined]


def test_documents_are_shown_as_text_and_only_web_addresses_are_links(
    browser: Browser,
    toy_model: Path,
    tmp_path: Path,
    build_index: Callable[..., Path],
    run_server: Callable[..., Any],
) -> None:
    evil = {
        "_id": "e",
        "title": "<img src=x onerror=document.title='hacked'>",
        "text": "<script>bees</script> &amp;",
    }
    urls = ["javascript:alert(1)", "//x", "data:,x", "https://example.org/<b>&amp;"]
    root = build_index([{**evil, "_id": url, "url": url} for url in urls])
    with run_server("--index-root", root) as server:
        tab = browser.new_page()
        tab.goto(f"{server.url}/?q=bees")
        assert titles(tab) == [evil["title"]] * 4
        assert tab.locator("#hits a").all_inner_texts() == [evil["title"]]
        assert set(tab.locator("#hits .address").all_inner_texts()) == set(urls)
        assert tab.locator("#hits .snippet").all_inner_texts() == [evil["text"]] * 4
        assert tab.title() == "bees · GLOW"
        tab.close()


# ---- a service that needs a key

KEY = "the-key-of-this-test"


@pytest.fixture
def guarded_page(
    browser: Browser,
    toy_index: Path,
    serve_app: Callable[[FastAPI], AbstractContextManager[httpx.Client]],
    request: pytest.FixtureRequest,
) -> Iterator[Page]:
    """A page of a service with an API key (and further settings as parameter); it asks no other server."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    more = getattr(request, "param", {"api_keys": f"tester:{digest}"})
    app = create_app(Settings(index_root=toy_index, **more), on_failure=lambda: None)
    with serve_app(app) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.02)
        context = browser.new_context(base_url=str(client.base_url))
        context.set_default_timeout(WAIT_MS)
        tab = context.new_page()
        wrong: list[str] = []
        tab.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
        tab.on("console", lambda message: wrong.append(message.text) if "Policy" in message.text else None)
        tab.on(
            "request",
            lambda asked: None if asked.url.startswith(str(client.base_url)) else wrong.append(asked.url),
        )
        yield tab
        context.close()
        assert wrong == []


def enter_key(page: Page, key: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.keyboard.press("Enter")


def test_a_service_that_needs_a_key_asks_for_it_and_then_searches(guarded_page: Page) -> None:
    guarded_page.goto("/?q=how do bees find home")
    alert = guarded_page.get_by_role("alert")
    alert.wait_for()
    assert "needs a key" in alert.inner_text()
    assert not guarded_page.get_by_role("button", name="Try again").is_visible()
    assert guarded_page.evaluate("document.activeElement.id") == "key"
    with guarded_page.expect_request("**/search") as asked:
        enter_key(guarded_page, f" {KEY} ")
    assert titles(guarded_page)[0] == "Bees"
    assert asked.value.headers["authorization"] == f"Bearer {KEY}"
    assert not alert.is_visible()
    guarded_page.locator("#about", has_text="50 documents").wait_for()
    search(guarded_page, "honey")
    guarded_page.locator("#terms .word", has_text="honey").wait_for()


def test_the_key_is_asked_for_before_the_first_search_and_can_hold_a_slash(guarded_page: Page) -> None:
    guarded_page.goto("/")
    guarded_page.get_by_role("alert").wait_for()
    assert guarded_page.evaluate("document.activeElement.id") == "key"
    guarded_page.keyboard.type("a/b")
    assert guarded_page.get_by_label("Key", exact=True).input_value() == "a/b"


def test_the_key_stays_in_its_tab_and_nowhere_else(guarded_page: Page) -> None:
    guarded_page.goto("/?q=bees")
    enter_key(guarded_page, KEY)
    titles(guarded_page)
    guarded_page.reload()
    titles(guarded_page)
    kept = "[Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]"
    session, local, cookie, address = guarded_page.evaluate(kept)
    assert (session, local, cookie) == ([KEY], [], "")
    assert KEY not in address
    assert KEY not in guarded_page.content()
    assert guarded_page.get_by_label("Key", exact=True).input_value() == ""
    other = guarded_page.context.new_page()
    other.goto("/?q=bees")
    other.get_by_role("alert").wait_for()
    assert "needs a key" in other.get_by_role("alert").inner_text()


def test_a_wrong_key_is_refused_forgotten_and_can_be_replaced(guarded_page: Page) -> None:
    guarded_page.goto("/?q=bees")
    enter_key(guarded_page, "nonsense")
    alert = guarded_page.get_by_role("alert")
    alert.get_by_text("The key was refused").wait_for()
    assert guarded_page.evaluate("sessionStorage.length") == 0
    assert guarded_page.evaluate("document.activeElement.id") == "key"
    enter_key(guarded_page, KEY)
    titles(guarded_page)
    assert not alert.is_visible()


@pytest.mark.parametrize("key", ["ключ", "two words", "тhe-key"])
def test_what_cannot_be_a_key_is_not_sent(guarded_page: Page, key: str) -> None:
    guarded_page.goto("/?q=bees")
    guarded_page.get_by_role("alert").wait_for()
    asked: list[str] = []
    guarded_page.on("request", lambda request: asked.append(request.url))
    enter_key(guarded_page, key)
    guarded_page.get_by_role("alert").get_by_text("That is no key").wait_for()
    assert asked == []
    enter_key(guarded_page, KEY)
    titles(guarded_page)


@pytest.mark.parametrize("guarded_page", [{"rate_limit": 0.02, "rate_burst": 2}], indirect=True)
def test_too_many_searches_say_how_long_to_wait_and_can_be_tried_again(guarded_page: Page) -> None:
    guarded_page.goto("/?q=bees")  # two requests: the search and /info
    titles(guarded_page)
    search(guarded_page, "honey")
    alert = guarded_page.get_by_role("alert")
    alert.get_by_text(re.compile(r"Wait \d\d seconds")).wait_for()
    assert guarded_page.get_by_role("button", name="Try again").is_visible()
    assert not guarded_page.get_by_label("Key", exact=True).is_visible()


def test_no_page_where_it_is_switched_off(toy_index: Path, serve_app: Callable[..., Any]) -> None:
    with serve_app(create_app(Settings(index_root=toy_index, page=False), on_failure=lambda: None)) as client:
        assert client.get("/").status_code == client.get("/static/app.js").status_code == 404
        assert client.get("/healthz").status_code == 200
