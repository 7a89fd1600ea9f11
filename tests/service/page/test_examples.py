"""Questions to begin with: of a setting, else clicked queries, else headings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


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

    def answer(route: Any) -> None:
        body = route.fetch().json()
        for hit in body["hits"]:
            hit["fields"] |= fields
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    tab.page.route("**/search", answer)
    tab.open()
    tab.page.locator("#examples a").first.wait_for()
    return set(tab.page.locator("#examples a").all_inner_texts())


def test_queries_that_led_to_documents_come_before_headings(tab: Any) -> None:
    assert drawn(tab, clicked_queries=["what do bees eat", "x" * 61]) == {"what do bees eat"}


def test_headings_are_drawn_anew_each_time(tab: Any, toy_corpus: Path) -> None:
    titles = {json.loads(line)["title"] for line in toy_corpus.read_text(encoding="utf-8").splitlines()}
    seen: set[str] = set()
    sent: set[str] = set()
    tab.page.on("request", lambda request: sent.add(request.post_data) if request.post_data else None)
    for _ in range(4):
        seen |= drawn(tab, clicked_queries=[])
    assert len(seen) > 4 and seen <= titles and len(sent) == 4


def test_a_setting_says_what_to_begin_with(
    open_page: Callable[..., Any], run_server: Callable[..., Any], toy_index: Path
) -> None:
    flags = ("--page-examples", "do bees sleep | why is the sea salty|")
    with run_server("--index-root", toy_index, *flags) as server, open_page(server.url) as tab:
        tab.open()
        tab.page.locator("#examples a").first.wait_for()
        assert tab.page.locator("#examples a").all_inner_texts() == ["do bees sleep", "why is the sea salty"]
