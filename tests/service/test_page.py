"""The search page in a real, headless Chromium (`GLOW_CHROMIUM`, default /usr/bin/chromium)."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
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
    page.keyboard.type("how do bees find the way home")
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
    assert page.title() == "how do bees find the way home · GLOW"
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


def test_no_page_where_it_is_switched_off(toy_index: Path, serve_app: Callable[..., Any]) -> None:
    with serve_app(create_app(Settings(index_root=toy_index, page=False), on_failure=lambda: None)) as client:
        assert client.get("/").status_code == client.get("/static/app.js").status_code == 404
        assert client.get("/healthz").status_code == 200
