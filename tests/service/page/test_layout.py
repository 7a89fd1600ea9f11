"""The search page and /docs: layout wide and narrow, the keyboard, and what people hear who cannot see."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Locator

from glow_service.api.routes import ROUTES
from tests.service.asking import QUERY
from tests.service.page.conftest import NARROW, WIDE

MOST_SHIFT = 0.05
"""Cumulative layout shift: web.dev calls 0.1 good."""
WATCH = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) if (!each.hadRecentInput) window.shift += each.value;
}).observe({ type: "layout-shift", buffered: true });
"""


def test_results_are_near_the_box_and_details_are_folded(tab: Any) -> None:
    page = tab.page

    def box(selector: str) -> Any:
        return page.locator(selector).first.bounding_box()

    page.set_viewport_size(NARROW)
    tab.titles("water")
    assert not page.locator(".tick").first.is_visible(), "filters are folded on a phone"
    assert box("#hits h3")["y"] + box("#hits h3")["height"] <= 0.4 * NARROW["height"]
    page.set_viewport_size(WIDE)
    page.locator(".tick").first.wait_for()
    assert box("#hits > li")["y"] - box("#form")["y"] - box("#form")["height"] <= 200
    line = page.locator("#how summary")
    assert re.fullmatch(r"50 results in \d+ ms · how this was searched", line.inner_text())
    assert re.fullmatch(r"\d+ % likely|score [\d.]+", page.locator("#hits .score").first.inner_text())
    parts = [page.locator(part).first for part in ("#terms", "#timings", "#hits .parts")]
    assert [part.is_visible() for part in parts] == [False] * 3
    line.click()
    assert [part.is_visible() for part in parts] == [True] * 3
    tab.search("honey")  # it stays unfolded
    tab.shown("honey")
    assert parts[0].is_visible()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_jumps_while_results_come(tab: Any, size: Any) -> None:
    page = tab.page
    page.set_viewport_size(size)
    page.add_init_script(WATCH)
    tab.open()
    page.locator("#examples a").first.wait_for()
    page.keyboard.type("zzyzx honey bees")
    page.locator("#status", has_text=re.compile(r"\d\d results")).wait_for()
    assert page.evaluate("shift") < MOST_SHIFT
    tab.titles("zzyzx honey bees", "&f.short=true")
    tab.stand_still()
    assert page.evaluate("shift") < MOST_SHIFT
    page.evaluate("document.body.style.paddingTop = '300px'")  # a jump is noticed
    page.wait_for_function(f"() => shift > {MOST_SHIFT}")


def test_keys_step_through_results_open_and_explain_them(tab: Any) -> None:
    page = tab.page
    tab.open()
    page.keyboard.type("jake/e")
    assert page.get_by_label("Search the documents").input_value() == "jake/e", "letters are letters"
    tab.search("water")
    titles = tab.shown("water")
    for key, place in (("ArrowDown", 0), ("ArrowDown", 1), ("j", 2), ("k", 1), ("ArrowUp", 0)):
        page.keyboard.press(key)
        assert tab.focus() == titles[place]
    ring = page.locator("#hits > li:has([data-step]:focus)")
    ring = ring.evaluate("li => [getComputedStyle(li).outlineStyle, getComputedStyle(li).overflow]")
    assert ring == ["solid", "visible"], "the focus is shown around the whole result"
    page.keyboard.press("e")
    region = page.get_by_role("region", name=f"Why “{titles[0]}” was found")
    region.get_by_text("Scores and words").wait_for()
    page.keyboard.press("Escape")
    assert not region.is_visible() and tab.focus() == titles[0]
    for _ in ("the button", "the title"):
        page.keyboard.press("Shift+Tab")
    assert tab.focus() == "how"
    page.keyboard.press("Enter")
    assert page.locator("#terms").is_visible()
    page.keyboard.press("Tab")
    assert tab.focus() == titles[0]
    page.keyboard.press("ArrowUp")
    assert tab.focus() == "query"
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    assert tab.focus() == titles[-1]
    page.route("https://www.example.org/**", lambda route: route.abort())
    tab.expected.append("ERR_FAILED")
    with page.expect_request(page.locator("#hits .address").last.inner_text()):
        page.keyboard.press("Enter")
    tab.wrong.clear()  # the document's own address


def test_axe_finds_nothing_wrong_in_any_state(tab: Any) -> None:
    page = tab.page
    tab.expected.append("422")
    tab.open()
    page.locator("#examples a").first.wait_for()
    assert tab.findings() == []
    tab.titles(f"{'unbreakable' * 12} zzyzx {QUERY}", "&f.short=true")
    page.locator("#doubt", has_text="zzyzx").wait_for()
    page.locator("#how summary").click()
    tab.explain()
    page.get_by_role("columnheader", name="Score change").wait_for()
    assert tab.findings() == []
    tab.open("zzzz qqqq", "&retriever=lexical")
    page.locator("#nothing a").first.wait_for()
    assert tab.findings() == []
    page.goto("/?id=toy/0")
    page.locator("#document h2").wait_for()
    assert tab.findings() == []
    tab.search("x" * 10_001)
    tab.alert()
    assert tab.findings() == []
    page.evaluate("document.querySelector('label.unseen').remove()")
    page.evaluate("document.getElementById('query').removeAttribute('placeholder')")
    assert any("critical label" in finding for finding in tab.findings()), "axe finds what is wrong"


# `/docs`: every route with its fields and responses, forms that send, under the page's own policy.


def test_docs_show_every_route_and_send_requests(tab: Any) -> None:
    page = tab.page
    tab.expected.append("422")

    def sent(operation: Locator, status: int) -> Any:
        operation.get_by_role("button", name="Send").click()
        response = operation.locator("pre", has_text=re.compile(rf"^{status}[^{{]*{{"))
        return json.loads(response.inner_text().partition("\n\n")[2])

    page.goto("/docs#post_search")
    page.locator("details").first.wait_for()
    script = "all => all.map(one => [...one.querySelectorAll('code')].map(code => code.innerText))"
    shown = [tuple(pair) for pair in page.eval_on_selector_all("details summary", script)]
    routes = {(route.method, min(route.paths, key=len).replace(":path", "")) for route in ROUTES}
    assert set(shown) == routes and len(shown) == len(routes)
    groups = page.locator("#groups h2").all_inner_texts()
    assert groups[0] == "search" and "admin" in groups
    search, document = page.locator("#post_search"), page.locator("#get_document")
    rows = {row.locator("th").inner_text(): row.inner_text() for row in search.locator("tbody tr").all()}
    assert '"dense" or "lexical" or "learned-sparse" or "hybrid"' in rows["retriever"]
    assert "max_top_k" in rows["top_k"]
    assert sent(search, 200)["hits"]
    assert tab.findings() == []
    search.get_by_label("Body").fill('{"query": 1}')
    assert sent(search, 422)["code"]
    document.locator("summary").click()
    document.get_by_label("id").fill("toy/0")
    assert sent(document, 200)["id"] == "toy/0"
