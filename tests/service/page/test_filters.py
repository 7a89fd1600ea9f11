"""Filters, facets and the choice of how to search, wide and on a phone."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any


def facts(tab: Any, name: str) -> set[str]:
    """Values of a metadata field among the results."""
    tab.titles()
    texts = tab.page.locator("#hits .fact").all_inner_texts()
    return {text.removeprefix(f"{name} ") for text in texts if text.startswith(f"{name} ")}


def test_filters_are_folded_on_a_phone_and_open_where_there_is_room(full_tab: Any) -> None:
    full_tab.found("water")
    is_wide = full_tab.page.viewport_size["width"] > 600
    assert full_tab.page.locator(".tick").first.is_visible() == is_wide
    assert not full_tab.is_too_wide()


def test_a_ticked_value_filters_stays_in_the_address_and_can_be_taken_off(full_tab: Any) -> None:
    page = full_tab.page
    full_tab.found("how do bees find home")
    assert facts(full_tab, "lang") == {"en", "de", "fr"}
    full_tab.unfold("#filters")
    page.locator(".tick", has_text="de").click()
    page.wait_for_url("**&f.lang=de")
    page.locator(".chip", has_text="lang: de").wait_for()
    assert facts(full_tab, "lang") == {"de"}
    page.reload()
    assert facts(full_tab, "lang") == {"de"}
    full_tab.unfold("#filters")
    assert page.locator(".tick", has_text="de").locator("input").is_checked()
    page.get_by_role("button", name="Take off the filter lang: de").click()
    page.wait_for_function("!location.search.includes('f.lang')")
    assert facts(full_tab, "lang") == {"en", "de", "fr"}
    page.go_back()
    page.locator(".chip", has_text="lang: de").wait_for()
    assert facts(full_tab, "lang") == {"de"}


def test_values_of_a_field_add_up_and_fields_narrow_each_other(full_tab: Any) -> None:
    full_tab.open("water", "&f.lang=de&f.lang=fr&f.short=true&f.year=2010..2020")
    assert facts(full_tab, "lang") == {"de", "fr"} and facts(full_tab, "short") == {"true"}
    years = {int(year) for year in facts(full_tab, "year")}
    assert years and min(years) >= 2010 and max(years) <= 2020
    full_tab.page.get_by_role("button", name="Take all off").click()
    full_tab.page.wait_for_function("location.search === '?q=water'")
    assert facts(full_tab, "short") == {"true", "false"}


def test_a_range_is_entered_in_numbers(full_tab: Any) -> None:
    full_tab.found("water", unfold="#filters")
    full_tab.page.get_by_label("year from").fill("2022")
    full_tab.page.keyboard.press("Tab")
    full_tab.page.wait_for_url("**&f.year=2022..")
    full_tab.page.locator(".chip", has_text="year").wait_for()
    assert {int(year) for year in facts(full_tab, "year")} == {2022, 2023, 2024}


def test_a_range_of_days_is_entered_as_dates(full_tab: Any) -> None:
    full_tab.found("water", unfold="#filters")
    full_tab.page.get_by_label("day from").fill("2024-10-15")
    full_tab.page.wait_for_url("**&f.day=2024-10-15..")
    full_tab.page.locator(".chip", has_text="day").wait_for()
    assert {day[:7] for day in facts(full_tab, "day")} <= {"2024-10", "2024-11", "2024-12"}


def test_counts_are_those_of_the_documents(full_tab: Any) -> None:
    full_tab.found("water", unfold="#filters")
    counts = full_tab.page.locator(".tick .count").all_inner_texts()
    assert sorted(int(count.removeprefix("≥ ")) for count in counts) == [16, 17, 17, 25, 25]


def test_filters_that_nothing_passes_say_what_to_do(full_tab: Any) -> None:
    full_tab.open("water", "&f.year=1900..1901")
    nothing = full_tab.page.locator("#nothing")
    nothing.wait_for()
    assert "Take a filter off" in nothing.inner_text()
    assert full_tab.page.locator("#found-title").inner_text().startswith("Nothing found")


def test_a_field_that_the_index_lacks_is_refused_with_the_known_ones(full_tab: Any) -> None:
    full_tab.expected.append("422")
    full_tab.open("water", "&f.nope=1")
    text = full_tab.alert().inner_text()
    assert "nope" in text and "lang" in text


def offered(tab: Any, columns: dict[str, Any]) -> list[str]:
    """Fields that the page asks the values of if the index has these columns."""
    tab.change("**/info", lambda info: info["index"].update(columns=columns))
    tab.page.route("**/search", lambda route: route.fulfill(status=503, json={"title": "Stopped here"}))
    with tab.page.expect_request("**/search") as asked:
        tab.open("water")
    tab.expected.append("503")
    return [facet["field"] for facet in json.loads(asked.value.post_data).get("facets", [])]


def test_fields_in_use_come_first_and_nearly_unique_ones_never(full_tab: Any) -> None:
    def column(documents: int, distinct: int) -> dict[str, Any]:
        return {"type": "string", "types": ["string"], "documents": documents, "distinct": distinct}

    columns = {"author": column(1_000, 51), "rare": column(200, 3), "lang": column(1_000, 3)}
    columns |= {"section": column(1_000, 50), "name": column(20, 11), "id": column(1_000, 1_000)}
    assert offered(full_tab, columns) == ["lang", "section", "rare"]


def test_a_page_may_show_few_results_of_one_value(
    full_index: Path,
    start_server: Callable[..., AbstractContextManager[Any]],
    open_page: Callable[..., Any],
    tmp_path: Path,
) -> None:
    with start_server(tmp_path, "--index-root", str(full_index), "--page-group-by", "lang:2") as running:
        with open_page(running.url) as tab:
            tab.open("how do bees find home")
            assert len(tab.titles()) == 6
            texts = tab.page.locator("#hits .fact").all_inner_texts()
            found = [text for text in texts if text.startswith("lang")]
            assert {text: found.count(text) for text in found} == {"lang en": 2, "lang de": 2, "lang fr": 2}
            tab.page.get_by_role("button", name="Why this result").nth(5).click()
            tab.page.locator(".explanation table").first.wait_for()


def test_how_to_search_can_be_chosen_and_stays_in_the_address(full_tab: Any) -> None:
    page = full_tab.page
    full_tab.found("how do bees find home")
    radios = page.get_by_role("radio").evaluate_all("all => all.map(one => [one.value, one.checked])")
    assert radios == [["hybrid", True], ["dense", False], ["lexical", False]]
    parts = page.locator("#hits .parts").first
    assert not parts.is_visible()
    full_tab.unfold("#how")
    assert "meaning" in parts.inner_text() and "words" in parts.inner_text()
    with page.expect_request("**/search") as asked:
        page.locator(".retrievers label", has_text="Words").click()
    assert json.loads(asked.value.post_data)["retriever"] == "lexical"
    page.wait_for_url("**&retriever=lexical")
    full_tab.titles()
    page.reload()
    assert full_tab.titles()[0] == "Bees"
    assert page.get_by_role("radio", name="Words").is_checked()


def test_an_index_without_words_or_columns_offers_neither(tab: Any) -> None:
    tab.found("water")
    script = "fetch('/info').then(answer => answer.json()).then(info => info.index.components)"
    parts = tab.page.evaluate(script)
    assert tab.page.locator("#retrievers").is_visible() == ("impacts" in parts)
    assert tab.page.locator("#filters").is_visible() == ("columns" in parts)
    assert (tab.page.locator("#hits .why").count() > 0) == ("explain" in parts)


def test_a_setting_lists_the_filters_in_their_order(
    open_page: Callable[..., Any],
    full_index: Path,
    start_server: Callable[..., AbstractContextManager[Any]],
    tmp_path: Path,
) -> None:
    flags = ("--index-root", str(full_index), "--page-filters", "year, lang,nothing")
    with start_server(tmp_path, *flags) as server, open_page(server.url) as tab:
        tab.found("water")
        legends = tab.page.locator("#filters legend").all_inner_texts()
        assert [text.split()[0] for text in legends] == ["year", "lang"]
        # What is not offered can still stand in the address.
        tab.found("water", "&f.short=true")
        assert tab.page.get_by_label("Take off the filter short: true").is_visible()
