"""The search page: layout, interface of people who cannot see or use a mouse, and the keyboard."""

import hashlib
import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Locator

from glow.search import RETRIEVERS
from glow.text.analyzer import STOP_WORDS
from glow_service.api.routes import ROUTES
from tests.service.asking import Serve

QUERY = "how do bees find the way home"
MOST_SHIFT = 0.05
"""Cumulative layout shift: web.dev calls 0.1 good."""
MOST_PAINT_MS = 150
WATCH = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) if (!each.hadRecentInput) window.shift += each.value;
}).observe({ type: "layout-shift", buffered: true });
document.addEventListener("DOMContentLoaded", () => {
  // What is changed is painted before a task that a frame has asked for.
  const painted = () => requestAnimationFrame(() => setTimeout(() => (window.painted ??= performance.now())));
  new MutationObserver(painted).observe(document.getElementById("hits"), { childList: true });
});
"""
PAGE = Path(__file__).parents[3] / "service" / "page"


def top(tab: Any, selector: str, side: str = "top") -> float:
    """Where the first such element begins or ends, in pixels of the window."""
    return tab.page.locator(selector).first.evaluate(f"one => one.getBoundingClientRect().{side}")


def test_the_first_result_is_near_the_search_box(full_tab: Any) -> None:
    full_tab.found(QUERY)
    if full_tab.page.viewport_size["width"] > 600:
        assert top(full_tab, "#hits > li") - top(full_tab, "#form", "bottom") <= 200
    else:
        assert top(full_tab, "#hits h3", "bottom") <= 0.4 * full_tab.page.viewport_size["height"]


def test_one_line_says_what_was_found_and_unfolds_to_how(full_tab: Any) -> None:
    full_tab.found(QUERY)
    line = full_tab.page.locator("#how summary")
    assert re.fullmatch(r"10 results in \d+ ms · how this was searched", line.inner_text())
    assert re.fullmatch(r"\d+ %|[\d.]+", full_tab.page.locator("#hits .score").first.inner_text())
    parts = [full_tab.page.locator(part).first for part in ("#terms", "#timings", "#hits .parts")]
    assert [part.is_visible() for part in parts] == [False] * 3
    line.click()
    assert [part.is_visible() for part in parts] == [True] * 3
    full_tab.search("water")  # it stays unfolded
    full_tab.titles()
    assert full_tab.page.locator("#terms").is_visible()


def test_the_stop_words_of_the_page_are_those_of_the_index() -> None:
    quoted = re.findall(r'^ {4}"([a-z ]+)",$', (PAGE / "stop-words.js").read_text(encoding="utf-8"), re.M)
    assert set(" ".join(quoted).split()) == STOP_WORDS


@pytest.mark.parametrize(
    ("snippets", "shown"),
    [
        (["bees(hive)\n\nA <em>hive</em>. The <em>bees</em> find <em>home</em>. More."], "… The bees find home. More."),
        (["<em>Bees</em>. More.", "… of them, <em>bees</em> go <em>home</em> …"], "… of them, bees go home …"),
        (["The <em>bees</em> fly. Then they <em>do</em> <em>the</em> rest."], "The bees fly. Then they do the rest."),
        (
            ["The <em>home</em> of <em>bees</em>. It is <em>homes</em> <em>bee</em> by <em>bees</em>."],
            "The home of bees. It is homes bee by bees.",
        ),
        (["Nothing here. Nor there."], "Nothing here. Nor there."),
    ],
)  # fmt: skip
def test_a_snippet_begins_with_the_sentence_that_matches_best(
    full_tab: Any, snippets: list[str], shown: str
) -> None:
    changed = {"highlights": {"text": snippets}, "fields": {"title": "How bees find the home"}}
    full_tab.change("**/search", lambda body: body["hits"][0].update(changed))
    full_tab.found(QUERY)
    first = full_tab.page.locator("#hits > li").first
    assert first.locator(".snippet").inner_text() == shown
    assert first.locator("h3 mark").all_inner_texts() == ["bees", "find", "home"]
    marks = set(first.locator(".snippet mark").all_inner_texts())
    assert not marks & STOP_WORDS and bool(marks) == ("em>" in "".join(snippets))


def test_a_query_of_stop_words_alone_marks_them(full_tab: Any) -> None:
    full_tab.found("how do the")
    assert "the" in map(str.lower, full_tab.page.locator("#hits mark:not(.attended)").all_inner_texts())


def test_nothing_jumps_while_results_come(full_tab: Any) -> None:
    page = full_tab.page
    page.add_init_script(WATCH)
    full_tab.open()
    page.locator("#examples a").first.wait_for()
    page.keyboard.type("zzyzx honey bees", delay=50)
    page.locator("#status", has_text="10 results").wait_for()
    assert page.evaluate("shift") < MOST_SHIFT
    full_tab.found("zzyzx honey bees", "&f.short=true")
    full_tab.stand_still()
    assert page.evaluate("shift") < MOST_SHIFT


def test_a_jump_is_noticed(full_tab: Any) -> None:
    full_tab.page.add_init_script(WATCH)
    full_tab.found(QUERY)
    full_tab.page.evaluate("document.body.style.paddingTop = '300px'")
    full_tab.page.wait_for_function(f"() => shift > {MOST_SHIFT}")


def test_results_are_painted_soon_after_their_response(full_tab: Any) -> None:
    """The best of three: what else a machine does comes on top."""
    full_tab.page.add_init_script(WATCH)
    took = []
    for _ in range(3):
        full_tab.open(QUERY)
        full_tab.page.wait_for_function("() => window.painted !== undefined")
        entry = "performance.getEntriesByType('resource').find(({ name }) => name.endsWith('/search'))"
        took.append(full_tab.page.evaluate(f"painted - {entry}.responseEnd"))
    assert 0 < min(took) <= MOST_PAINT_MS


# `/docs`: every route with its fields and answers, forms that send, under the page's own policy.

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
KEY = "the-key-of-this-test"


def opened(tab: Any, operation: str) -> Locator:
    """The part of one operation, unfolded."""
    tab.page.goto("/docs")
    part: Locator = tab.page.locator(f"#{operation}")
    part.locator("summary").click()
    return part


def sent(part: Locator) -> tuple[int, Any]:
    """Status and JSON of what the form of an operation brings."""
    part.get_by_role("button", name="Send").click()
    answer = part.locator("pre")
    answer.filter(has_text="{").wait_for()
    status, _, body = answer.inner_text().partition("\n\n")
    return int(status), json.loads(body)


def test_every_route_is_shown_once_in_its_group(tab: Any) -> None:
    tab.page.goto("/docs")
    tab.page.locator("details").first.wait_for()
    script = "all => all.map(one => [...one.querySelectorAll('code')].map(code => code.innerText))"
    shown = tab.page.eval_on_selector_all("details summary", script)
    paths = {(route.method, min(route.paths, key=len).replace(":path", "")) for route in ROUTES}
    assert {tuple(pair) for pair in shown} == paths and len(shown) == len(paths)
    groups = tab.page.locator("#groups h2").all_inner_texts()
    assert groups[0] == "search" and "admin" in groups


def test_fields_have_types_and_meanings(tab: Any) -> None:
    table = opened(tab, "post_search").locator("table")
    row = table.locator("tr", has=tab.page.locator("th", has_text="retriever"))
    assert row.locator("td").all_inner_texts()[0] == '"dense" or "lexical" or "learned-sparse" or "hybrid"'
    assert "max_top_k" in table.locator("tr", has=tab.page.locator("th", has_text="top_k")).inner_text()


def test_forms_send_and_show_what_comes(tab: Any) -> None:
    tab.expected.append("422")
    part = opened(tab, "post_search")
    status, found = sent(part)
    assert status == 200 and found["hits"]
    part.get_by_label("Body").fill('{"query": 1}')
    part.get_by_role("button", name="Send").click()
    part.locator("pre", has_text="422").wait_for()
    document = opened(tab, "get_document")
    document.get_by_label("id").fill("toy/0")
    status, found = sent(document)
    assert (status, found["id"]) == (200, "toy/0")


def test_a_key_is_sent_once_it_is_given(open_page: Callable[..., Any], serve: Serve) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    with serve(api_keys=f"tester:{digest}") as client, open_page(str(client.base_url)) as tab:
        tab.expected += ["401"]
        part = opened(tab, "get_info")
        assert sent(part)[0] == 401
        tab.page.get_by_label("Key, where").fill(KEY)
        tab.page.get_by_role("button", name="Use key").click()
        tab.page.get_by_text("The key is used from now on.").wait_for()
        part.locator("summary").click()
        assert sent(part)[0] == 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong(full_tab: Any, scheme: str) -> None:
    full_tab.page.emulate_media(color_scheme=scheme)
    sent(opened(full_tab, "post_search"))
    assert findings(full_tab) == []


def test_the_page_offers_every_retriever() -> None:
    page = files("glow_service") / "page"
    offered = re.findall(r'name="retriever" value="([\w-]+)"', (page / "index.html").read_text())
    assert sorted(offered) == sorted(RETRIEVERS)
    names = re.search(r"RETRIEVER_NAMES = {(.*)}", (page / "results.js").read_text())
    assert names and all(re.search(rf'"?{name}"?: ', names[1]) for name in offered)


# The page without a mouse, and for those who hear it: keys, focus, and axe.


def test_arrows_step_through_results_and_enter_opens_one(full_tab: Any) -> None:
    page = full_tab.page
    page.route("https://www.example.org/**", lambda route: route.abort())
    full_tab.expected.append("ERR_FAILED")
    full_tab.open()
    page.keyboard.press("/")
    page.keyboard.type("water")
    page.keyboard.press("Enter")
    titles = full_tab.titles()
    page.keyboard.press("ArrowDown")
    assert full_tab.step() == titles[0]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    assert full_tab.step() == titles[2]
    page.keyboard.press("k")
    assert full_tab.step() == titles[1]
    with page.expect_request(page.locator("#hits .address").nth(1).inner_text()):
        page.keyboard.press("Enter")
    full_tab.wrong.clear()  # the document's own address


def test_stepping_up_from_the_first_result_leads_back_to_the_query(full_tab: Any) -> None:
    titles = full_tab.found("water")
    full_tab.page.keyboard.press("ArrowDown")
    full_tab.page.keyboard.press("ArrowUp")
    assert full_tab.page.evaluate("document.activeElement.id") == "query"
    for _ in range(12):
        full_tab.page.keyboard.press("ArrowDown")
    assert full_tab.step() == titles[-1]


def test_letters_typed_into_a_query_are_letters(full_tab: Any) -> None:
    full_tab.found("water")
    query = full_tab.page.get_by_label("Search the documents")
    query.fill("")
    full_tab.page.keyboard.type("jake/e")
    assert query.input_value() == "jake/e"


def test_e_opens_reasons_and_escape_closes_them(full_tab: Any) -> None:
    page = full_tab.page
    titles = full_tab.found("water")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("e")
    region = page.get_by_role("region", name=f"Why “{titles[0]}” was found")
    region.locator("table").first.wait_for()
    page.keyboard.press("Escape")
    assert not region.is_visible()
    assert full_tab.step() == titles[0]


def test_a_filter_ticked_by_key_keeps_the_focus(full_tab: Any) -> None:
    page = full_tab.page
    full_tab.found("water", unfold="#filters")
    page.locator(".tick", has_text="en").locator("input").focus()
    page.keyboard.press("Space")
    page.locator(".chip", has_text="lang: en").wait_for()
    full_tab.titles()
    assert page.evaluate("document.activeElement.dataset.choice") == "lang en"
    assert page.get_by_role("status").inner_text() == "10 results"


def test_the_line_above_the_results_unfolds_by_key(full_tab: Any) -> None:
    page = full_tab.page
    titles = full_tab.found("water")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.parentElement.id") == "how"
    page.keyboard.press("Enter")
    assert page.locator("#terms").is_visible()
    page.keyboard.press("Tab")
    assert full_tab.step() == titles[0]


def findings(tab: Any) -> list[str]:
    """What axe finds wrong, minor things included."""
    tab.stand_still()  # what fades in has no contrast yet
    tab.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = tab.page.evaluate("axe.run().then(found => found.violations)")
    nodes = [(one, node) for one in found for node in one["nodes"]]
    return [f"{one['impact']} {one['id']}: {node['html']} {node['failureSummary']}" for one, node in nodes]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong_in_any_state(full_tab: Any, scheme: str) -> None:
    page = full_tab.page
    page.emulate_media(color_scheme=scheme)
    full_tab.expected.append("422")
    full_tab.open()
    page.locator("#examples a").first.wait_for()
    assert findings(full_tab) == []
    page.keyboard.type("zzyzx honey bees")
    page.locator("#doubt", has_text="zzyzx").wait_for()
    assert findings(full_tab) == []
    full_tab.found("how do bees find the way home", "&f.short=true", unfold="#filters")
    full_tab.unfold("#how")
    page.get_by_role("button", name="Why this result").first.click()
    page.get_by_role("columnheader", name="Score change").wait_for()
    assert findings(full_tab) == []
    full_tab.search("x" * 10_001)
    full_tab.alert()
    assert findings(full_tab) == []


def test_axe_does_find_what_is_wrong(full_tab: Any) -> None:
    full_tab.open()
    full_tab.page.evaluate("document.querySelector('label.unseen').remove()")
    full_tab.page.evaluate("document.getElementById('query').removeAttribute('placeholder')")
    assert re.search(r"critical label", "\n".join(findings(full_tab)))
