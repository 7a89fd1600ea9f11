"""The page without a mouse, and for those who hear it: keys, focus, and axe."""

import re
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"


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
    address = page.locator("#hits .address").nth(1).inner_text()
    with page.expect_request(address):
        page.keyboard.press("Enter")
    full_tab.wrong.clear()  # the document's own address


def test_stepping_up_from_the_first_result_leads_back_to_the_query(full_tab: Any) -> None:
    full_tab.open("water")
    titles = full_tab.titles()
    full_tab.page.keyboard.press("ArrowDown")
    full_tab.page.keyboard.press("ArrowUp")
    assert full_tab.page.evaluate("document.activeElement.id") == "query"
    for _ in range(12):
        full_tab.page.keyboard.press("ArrowDown")
    assert full_tab.step() == titles[-1]


def test_letters_typed_into_a_query_are_letters(full_tab: Any) -> None:
    full_tab.open("water")
    full_tab.titles()
    query = full_tab.page.get_by_label("Search the documents")
    query.fill("")
    full_tab.page.keyboard.type("jake/e")
    assert query.input_value() == "jake/e"


def test_e_opens_reasons_and_escape_closes_them(full_tab: Any) -> None:
    page = full_tab.page
    full_tab.open("water")
    titles = full_tab.titles()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("e")
    region = page.get_by_role("region", name=f"Why “{titles[0]}” was found")
    region.locator("table").first.wait_for()
    page.keyboard.press("Escape")
    assert not region.is_visible()
    assert full_tab.step() == titles[0]


def test_a_filter_ticked_by_key_keeps_the_focus(full_tab: Any) -> None:
    page = full_tab.page
    full_tab.open("water")
    full_tab.titles()
    full_tab.unfold("#filters")
    page.locator(".tick", has_text="en").locator("input").focus()
    page.keyboard.press("Space")
    page.locator(".chip", has_text="lang: en").wait_for()
    full_tab.titles()
    assert page.evaluate("document.activeElement.dataset.choice") == "lang en"
    assert page.get_by_role("status").inner_text() == "10 results"


def test_the_line_above_the_results_unfolds_by_key(full_tab: Any) -> None:
    page = full_tab.page
    full_tab.open("water")
    titles = full_tab.titles()
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
    return [
        f"{one['impact']} {one['id']}: {node['html']} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]


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
    full_tab.open("how do bees find the way home", "&f.short=true")
    full_tab.titles()
    full_tab.unfold("#filters")
    full_tab.unfold("#how")
    page.get_by_role("button", name="Why this result").first.click()
    page.get_by_role("columnheader", name="Score change").wait_for()
    assert findings(full_tab) == []
    full_tab.search("x" * 2_001)
    full_tab.alert()
    assert findings(full_tab) == []


def test_axe_does_find_what_is_wrong(full_tab: Any) -> None:
    full_tab.open()
    full_tab.page.evaluate("document.querySelector('label.unseen').remove()")
    full_tab.page.evaluate("document.getElementById('query').removeAttribute('placeholder')")
    assert re.search(r"critical label", "\n".join(findings(full_tab)))
