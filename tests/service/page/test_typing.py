"""Results while a query is typed: few searches, one at a time, quiet, and nothing lost by them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glow_service.app import create_app
from glow_service.settings import Settings

QUERY = "how do bees find the way home"
FAST_MS, SLOW_MS = 10, 400
"""Between two keys: less and more than the pause after which the page searches."""
COUNT = """() => {
  const underWay = new Set();
  const send = window.fetch;
  window.counts = { dropped: 0, most: 0 };
  window.fetch = (path, options) => {
    underWay.add(options.signal);
    counts.most = Math.max(counts.most, [...underWay].filter((signal) => !signal.aborted).length);
    options.signal.addEventListener("abort", () => (counts.dropped += underWay.has(options.signal)));
    return send(path, options).finally(() => underWay.delete(options.signal));
  };
}"""

KEYS_AT_ONCE = """(text) => {
  const box = document.getElementById("query");
  for (let end = 1; end <= text.length; end++) {
    box.value = text.slice(0, end);
    box.dispatchEvent(new InputEvent("input", { bubbles: true }));
  }
}"""
"""Keys that no machine is too slow for: not one pause is between them."""


def watched(tab: Any) -> list[str]:
    """Queries that the page sends from now on."""
    queries: list[str] = []

    def note(request: Any) -> None:
        if request.url.endswith("/search") and "query" in (body := json.loads(request.post_data)):
            queries.append(body["query"])

    tab.page.on("request", note)
    return queries


def begin(tab: Any) -> list[str]:
    """Opens the page without a query, ready to type."""
    tab.open()
    tab.page.locator("#examples a").first.wait_for()
    return watched(tab)


def shown(tab: Any, query: str) -> None:
    """Waits until the page shows the results of a query."""
    tab.page.wait_for_url(f"**/?q={query.replace(' ', '%20')}")
    tab.page.locator("#hits > li").first.wait_for()


def test_a_pause_shows_results_and_the_focus_stays(full_tab: Any) -> None:
    queries = begin(full_tab)
    full_tab.page.evaluate(KEYS_AT_ONCE, QUERY)
    shown(full_tab, QUERY)
    assert full_tab.titles()[0] == "Bees"
    assert queries == [QUERY]
    assert full_tab.page.evaluate("document.activeElement.id") == "query"
    full_tab.page.keyboard.type(" now")
    shown(full_tab, f"{QUERY} now")


def test_enter_sends_nothing_again_and_the_way_back_has_one_step(full_tab: Any) -> None:
    queries = begin(full_tab)
    for part in ("honey", " bees", " eat"):
        full_tab.page.keyboard.type(part)
        full_tab.page.wait_for_timeout(SLOW_MS)
    shown(full_tab, "honey bees eat")
    full_tab.page.wait_for_timeout(SLOW_MS)
    sent = len(queries)
    full_tab.page.keyboard.press("Enter")
    assert full_tab.page.get_by_role("status").inner_text() == "10 results"
    full_tab.page.wait_for_timeout(SLOW_MS)
    assert len(queries) == sent
    full_tab.page.go_back()
    full_tab.page.locator("#welcome").wait_for()
    assert full_tab.page.get_by_label("Search the documents").input_value() == ""


def test_a_search_that_is_overtaken_is_dropped(full_tab: Any) -> None:
    page = full_tab.page
    begin(full_tab)
    page.evaluate(COUNT)
    page.route(
        "**/search", lambda route: route.continue_() if "honey bees" in route.request.post_data else None
    )
    page.keyboard.insert_text("honey")
    page.wait_for_timeout(SLOW_MS)
    page.keyboard.insert_text(" bees")
    shown(full_tab, "honey bees")
    full_tab.titles()
    assert page.evaluate("counts") == {"dropped": 1, "most": 1}


def test_a_screen_reader_hears_the_end_and_not_each_key(full_tab: Any) -> None:
    page = full_tab.page
    begin(full_tab)
    page.evaluate(
        "window.heard = []; new MutationObserver(() => heard.push(document.getElementById('status').textContent))"
        ".observe(document.getElementById('status'), {childList: true, characterData: true, subtree: true})"
    )
    for part in ("zzyzx", " honey", " bees"):
        page.keyboard.insert_text(part)
        page.wait_for_timeout(SLOW_MS)
    shown(full_tab, "zzyzx honey bees")
    page.locator("#status", has_text="10 results").wait_for()
    assert page.evaluate("heard") == ["10 results"]
    assert "zzyzx" in page.locator("#doubt").inner_text()


def test_results_that_somebody_steps_through_stay(full_tab: Any) -> None:
    page = full_tab.page
    full_tab.open("honey bees")
    titles = full_tab.titles()
    held: list[Any] = []
    page.route("**/search", lambda route: held.append(route))
    page.keyboard.press("End")
    with page.expect_request("**/search"):
        page.keyboard.type(" eat", delay=FAST_MS)
    page.keyboard.press("ArrowDown")
    assert full_tab.step() == titles[0]
    for route in held:
        route.continue_()
    page.unroute("**/search")
    page.wait_for_url("**/?q=honey%20bees")
    assert full_tab.step() == titles[0]
    page.keyboard.press("e")
    page.locator(".explanation table").first.wait_for()


def test_what_cannot_be_searched_is_passed_over(full_tab: Any) -> None:
    full_tab.expected.append("422")
    begin(full_tab)
    query = full_tab.page.get_by_label("Search the documents")
    with full_tab.page.expect_response("**/search") as refused:
        query.fill("x" * 2_001)
    assert refused.value.status == 422 and not full_tab.page.locator("#problem").is_visible()
    query.fill("honey bees")
    shown(full_tab, "honey bees")


def test_a_service_that_is_busy_is_not_asked_again_before_enter(
    open_page: Callable[..., Any], serve_app: Callable[..., Any], toy_index: Path
) -> None:
    settings = Settings(index_root=toy_index, rate_limit=0.1, rate_burst=2, default_timeout_ms=30_000)
    with serve_app(create_app(settings, on_failure=lambda: None)) as http:
        with open_page(str(http.base_url)) as tab:
            tab.expected.append("429")
            tab.open("bees")  # two requests: /info and the search
            titles = tab.titles()
            queries = watched(tab)
            tab.page.keyboard.press("End")
            for letter in "abcdef":
                tab.page.keyboard.type(letter)
                tab.page.wait_for_timeout(SLOW_MS)
            assert len(queries) == 1
            assert tab.titles() == titles and not tab.page.locator("#problem").is_visible()
            tab.page.keyboard.press("Enter")
            tab.page.wait_for_url("**/?q=beesabcdef")
            assert queries[1:] == ["beesabcdef"]


def test_a_setting_leaves_it_to_enter(
    open_page: Callable[..., Any], run_server: Callable[..., Any], toy_index: Path
) -> None:
    with run_server("--index-root", toy_index, "--no-page-live") as server, open_page(server.url) as tab:
        queries = begin(tab)
        tab.page.keyboard.type("honey bees")
        tab.page.wait_for_timeout(2 * SLOW_MS)
        assert queries == []
        tab.page.keyboard.press("Enter")
        assert tab.titles() and queries == ["honey bees"]
