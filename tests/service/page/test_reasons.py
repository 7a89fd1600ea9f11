"""Highlights, and why a result was found: asked for when it is opened, and not before."""

import json
from typing import Any

QUERY = "how do bees find the way home"


def cells(tab: Any, table: str, column: str) -> list[tuple[str, str]]:
    """Each word of a table in the open explanation, with what a column says of it."""
    found = tab.page.locator(".explanation:visible .table", has_text=table).locator("table")
    heads = found.locator("thead th").all_inner_texts()
    rows = found.locator("tbody tr:visible").all()
    lines = [row.locator("th, td").all_inner_texts() for row in rows]
    return [(line[0], line[heads.index(column)]) for line in lines]


def test_words_of_the_query_are_marked_in_text_and_title(full_tab: Any) -> None:
    full_tab.open(QUERY)
    assert full_tab.titles()[0] == "Bees"
    first = full_tab.page.locator("#hits > li").first
    marks = {word.lower() for word in first.locator(".snippet mark").all_inner_texts()}
    assert {"bees", "home"} <= marks
    assert "hive" not in marks
    assert not {"how", "do", "the"} & marks
    assert first.locator("h3 mark").all_inner_texts() == ["Bees"]
    assert first.locator(".snippet mark.attended").count() == 0


def test_reasons_are_asked_for_the_opened_result_alone_and_once(full_tab: Any) -> None:
    page = full_tab.page
    bodies: list[Any] = []
    page.on("request", lambda asked: bodies.append(json.loads(asked.post_data)) if asked.post_data else None)
    full_tab.open(QUERY)
    title = full_tab.titles()[1]
    assert [body.get("explain") for body in bodies] == [None]
    buttons = page.get_by_role("button", name="Why this result")
    assert buttons.count() == 10
    buttons.nth(1).click()
    page.get_by_role("region", name=f"Why “{title}” was found").locator("table").first.wait_for()
    assert (bodies[1]["top_k"], bodies[1]["offset"], bodies[1]["explain"]) == (1, 1, {"leave_one_out": True})
    buttons.nth(1).click()
    assert not page.get_by_role("region", name=f"Why “{title}” was found").is_visible()
    assert buttons.nth(1).get_attribute("aria-expanded") == "false"
    buttons.nth(1).click()
    assert page.get_by_role("region", name=f"Why “{title}” was found").is_visible()
    assert len(bodies) == 2


def test_an_explanation_says_what_each_word_did_and_where_the_encoder_looked(full_tab: Any) -> None:
    """Effects come first; the weights that a tower reads are its inputs, which it may turn round, and are not shown."""
    page = full_tab.page
    full_tab.open(QUERY)
    full_tab.titles()
    page.get_by_role("button", name="Why this result").first.click()
    page.locator(".explanation table").first.wait_for()
    heads = page.locator(".explanation:visible .table", has_text="Your words").locator("thead th")
    assert heads.all_inner_texts()[:2] == ["Word", "Score change"]
    assert "Weight" not in page.locator(".explanation:visible").first.inner_text()
    deltas = dict(cells(full_tab, "Your words", "Score change"))
    assert any(value not in ("–", "0.000") for value in deltas.values())
    assert "bees" in deltas
    answered = dict(cells(full_tab, "Your words", "Answered by"))
    assert answered["bees"] == "bees" and set(answered) == set(QUERY.split())
    alike = [float(value) for _, value in cells(full_tab, "Your words", "How alike")]
    assert all(-1 <= value <= 1 for value in alike) and max(alike) > 0.5
    attention = [float(value) for _, value in cells(full_tab, "Your words", "Attention")]
    assert 0 < sum(attention) <= 1.01
    fields = cells(full_tab, "What its encoder looked at", "Field")
    assert {field for _, field in fields} <= {"title", "url", "anchor", "clicked_queries", "text"}
    looked = [float(value) for _, value in cells(full_tab, "What its encoder looked at", "Attention")]
    assert looked == sorted(looked, reverse=True)
    more = page.get_by_role("button", name="Show all")
    if more.count():
        more.click()
        assert len(cells(full_tab, "What its encoder looked at", "Attention")) > len(looked)
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_bars_of_a_table_are_as_long_as_their_numbers(full_tab: Any) -> None:
    full_tab.open(QUERY)
    full_tab.titles()
    full_tab.page.get_by_role("button", name="Why this result").first.click()
    full_tab.page.locator(".explanation table").first.wait_for()
    effects = [value.replace("−", "-") for _, value in cells(full_tab, "Your words", "Score change")]
    numbers = [abs(float(value)) for value in effects if value != "–"]
    shares = full_tab.shares(".explanation .table:first-of-type tbody td.measure:nth-child(2)")[
        : len(numbers)
    ]
    for value, share in zip(numbers, shares, strict=True):
        assert abs(value / max(numbers) - share) < 0.03


def test_an_explanation_that_fails_says_so_in_its_place_and_can_be_tried_again(full_tab: Any) -> None:
    page = full_tab.page
    full_tab.expected.append("ERR_INTERNET_DISCONNECTED")
    full_tab.open(QUERY)
    full_tab.titles()
    page.context.set_offline(True)
    page.get_by_role("button", name="Why this result").first.click()
    panel = page.locator(".explanation").first
    panel.get_by_text("cannot be reached").wait_for()
    assert page.locator("#hits > li").count() == 10
    page.context.set_offline(False)
    panel.get_by_role("button", name="Try again").click()
    panel.locator("table").first.wait_for()
