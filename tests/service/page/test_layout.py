"""Where the first result stands, what its text begins with, and that nothing jumps on the way there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from glow.text.analyzer import STOP_WORDS

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
    found: float = tab.page.locator(selector).first.evaluate(f"one => one.getBoundingClientRect().{side}")
    return found


def test_the_first_result_is_near_the_search_box(full_tab: Any) -> None:
    full_tab.open(QUERY)
    full_tab.titles()
    if full_tab.page.viewport_size["width"] > 600:
        assert top(full_tab, "#hits > li") - top(full_tab, "#form", "bottom") <= 200
    else:
        assert top(full_tab, "#hits h3", "bottom") <= 0.4 * full_tab.page.viewport_size["height"]


def test_one_line_says_what_was_found_and_unfolds_to_how(full_tab: Any) -> None:
    full_tab.open(QUERY)
    full_tab.titles()
    line = full_tab.page.locator("#how summary")
    assert re.fullmatch(r"10 results in \d+ ms · how this was searched", line.inner_text())
    assert re.fullmatch(r"\d+ %|[\d.]+", full_tab.page.locator("#hits .score").first.inner_text())
    for part in ("#terms", "#timings", "#hits .parts"):
        assert not full_tab.page.locator(part).first.is_visible()
    line.click()
    for part in ("#terms", "#timings", "#hits .parts"):
        assert full_tab.page.locator(part).first.is_visible()
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
    def answer(route: Any) -> None:
        body = route.fetch().json()
        body["hits"][0] |= {"highlights": {"text": snippets}, "fields": {"title": "How bees find the home"}}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    full_tab.page.route("**/search", answer)
    full_tab.open(QUERY)
    full_tab.titles()
    first = full_tab.page.locator("#hits > li").first
    assert first.locator(".snippet").inner_text() == shown
    assert first.locator("h3 mark").all_inner_texts() == ["bees", "find", "home"]
    marks = set(first.locator(".snippet mark").all_inner_texts())
    assert not marks & STOP_WORDS and bool(marks) == ("em>" in "".join(snippets))


def test_nothing_jumps_while_results_come(full_tab: Any) -> None:
    page = full_tab.page
    page.add_init_script(WATCH)
    full_tab.open()
    page.locator("#examples a").first.wait_for()
    page.keyboard.type("zzyzx honey bees", delay=50)
    page.locator("#status", has_text="10 results").wait_for()
    assert page.evaluate("shift") < MOST_SHIFT
    full_tab.open("zzyzx honey bees", "&f.short=true")
    full_tab.titles()
    full_tab.stand_still()
    assert page.evaluate("shift") < MOST_SHIFT


def test_a_jump_is_noticed(full_tab: Any) -> None:
    full_tab.page.add_init_script(WATCH)
    full_tab.open(QUERY)
    full_tab.titles()
    full_tab.page.evaluate("document.body.style.paddingTop = '300px'")
    full_tab.page.wait_for_function(f"() => shift > {MOST_SHIFT}")


def test_results_are_painted_soon_after_their_response(full_tab: Any) -> None:
    """The best of three: what else a machine does comes on top."""
    full_tab.page.add_init_script(WATCH)
    took = []
    for _ in range(3):
        full_tab.open(QUERY)
        full_tab.page.wait_for_function("() => window.painted !== undefined")
        took.append(
            full_tab.page.evaluate(
                "painted - performance.getEntriesByType('resource').find(({ name }) => name.endsWith('/search')).responseEnd"
            )
        )
    assert 0 < min(took) <= MOST_PAINT_MS
