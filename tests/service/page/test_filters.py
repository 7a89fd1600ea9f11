"""Filters, facets and the choice of how to search."""

from typing import Any

from tests.service.asking import QUERY


def facts(tab: Any, name: str) -> set[str]:
    """Values of a metadata field among the results."""
    tab.titles()
    texts = tab.page.locator("#hits .fact").all_inner_texts()
    return {text.removeprefix(f"{name} ") for text in texts if text.startswith(f"{name} ")}


def test_a_ticked_value_filters_stays_in_the_address_and_can_be_taken_off(tab: Any) -> None:
    page = tab.page
    tab.open("water")
    assert facts(tab, "lang") == {"en", "de", "fr"}
    counts = page.locator(".tick .count").all_inner_texts()
    assert sorted(int(count) for count in counts) == [16, 17, 17, 25, 25]
    page.locator(".tick", has_text="de").locator("input").focus()
    page.keyboard.press("Space")
    page.wait_for_url("**&f.lang=de")
    page.locator(".chip", has_text="lang: de").wait_for()
    assert facts(tab, "lang") == {"de"}
    assert page.evaluate("document.activeElement.dataset.choice") == "lang de"
    page.reload()
    assert facts(tab, "lang") == {"de"}
    assert page.locator(".tick", has_text="de").locator("input").is_checked()
    page.get_by_role("button", name="Remove filter lang: de").click()
    page.wait_for_function("!location.search.includes('f.lang')")
    assert facts(tab, "lang") == {"en", "de", "fr"}
    page.go_back()
    page.locator(".chip", has_text="lang: de").wait_for()
    assert facts(tab, "lang") == {"de"}


def test_values_of_a_field_add_up_and_fields_and_ranges_narrow_each_other(tab: Any) -> None:
    page = tab.page
    tab.open("water", "&f.lang=de&f.lang=fr&f.short=true&f.year=2010..2020")
    assert facts(tab, "lang") == {"de", "fr"} and facts(tab, "short") == {"true"}
    assert facts(tab, "year") <= {str(year) for year in range(2010, 2021)}
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_function("location.search === '?q=water'")
    assert facts(tab, "short") == {"true", "false"}
    page.get_by_label("year from").fill("2022")
    page.keyboard.press("Tab")
    page.wait_for_url("**&f.year=2022..")
    page.locator(".chip", has_text="year").wait_for()
    assert facts(tab, "year") == {"2022", "2023", "2024"}
    page.get_by_role("button", name="Remove filter year").click()
    page.wait_for_url("**/?q=water")
    page.get_by_label("day from").fill("2024-10-15")
    page.wait_for_url("**&f.day=2024-10-15..")
    page.locator(".chip", has_text="day").wait_for()
    assert {day[:7] for day in facts(tab, "day")} <= {"2024-10", "2024-11", "2024-12"}


def test_the_order_can_be_chosen_and_stays_in_the_address(tab: Any) -> None:
    page = tab.page
    best = tab.titles("water")
    box = page.get_by_label("Sort by")
    texts = box.locator("option").all_inner_texts()
    assert texts[:3] == ["Best first", "day: oldest first", "day: newest first"]
    assert {"year: low to high", "lang: A to Z"} <= set(texts) and len(texts) == 7
    box.select_option("year: high to low")
    page.wait_for_url("**&sort=-year")
    for _ in ("chosen", "reloaded"):
        titles = tab.titles()
        years = page.locator("#hits .fact", has_text="year").all_inner_texts()
        assert years == sorted(years, reverse=True) and titles != best
        assert tab.sent[-1]["sort"][0] == {"field": "year", "order": "desc"}
        page.reload()
    box.select_option("Best first")
    page.wait_for_url("**/?q=water")
    assert tab.titles() == best


def test_filters_that_nothing_passes_or_the_index_lacks_say_what_to_do(tab: Any) -> None:
    tab.expected.append("422")
    tab.open("water", "&f.year=1900..1901")
    tab.page.locator("#nothing", has_text="No results match these filters").wait_for()
    assert tab.page.locator("#found-title").inner_text().startswith("Nothing found")
    tab.open("water", "&f.nope=1")
    assert "nope" in tab.alert() and "lang" in tab.alert()


def test_fields_in_use_come_first_and_nearly_unique_ones_never(tab: Any) -> None:
    numbers = {"author": (1_000, 51), "rare": (200, 3), "lang": (1_000, 3)}
    numbers |= {"section": (1_000, 50), "name": (20, 11), "id": (1_000, 1_000)}
    columns = {
        name: {"type": "string", "documents": documents, "distinct": distinct}
        for name, (documents, distinct) in numbers.items()
    }
    tab.expected.append("422")  # the index itself has other fields
    tab.change("**/info", lambda info: info["index"].update(columns=columns))
    tab.open("water")
    tab.alert()
    assert [facet["field"] for facet in tab.sent[0]["facets"]] == ["lang", "section", "rare"]


def test_how_to_search_can_be_chosen_and_stays_in_the_address(tab: Any) -> None:
    page = tab.page
    tab.titles(QUERY)
    radios = page.get_by_role("radio").evaluate_all("all => all.map(one => [one.value, one.checked])")
    assert radios == [["hybrid", True], ["dense", False], ["lexical", False]]
    page.locator("#how summary").click()
    parts = page.locator("#hits .parts").first.inner_text()
    assert "meaning" in parts and "words" in parts
    page.locator(".retrievers label", has_text="Words").click()
    page.wait_for_url("**&retriever=lexical")
    assert tab.titles()[0] == "Bees"
    page.reload()
    assert tab.titles()[0] == "Bees"
    assert page.get_by_role("radio", name="Words").is_checked()
    assert [body["retriever"] for body in tab.sent] == ["hybrid", "lexical", "lexical"]
    first = tab.titles("water and the sun")
    with page.expect_response("**/search"):
        page.get_by_label("Re-rank").check()
    page.wait_for_url("**&rerank=on")
    again = tab.titles()
    assert again != first
    tab.explain()
    table = page.get_by_role("table", name="Words that the re-ranker read")
    table.wait_for()
    assert "text" in table.inner_text() and "re-ranked" in page.locator("#hits .scores").first.inner_text()
    page.reload()
    assert tab.titles() == again and page.get_by_label("Re-rank").is_checked()


def test_what_an_index_lacks_is_not_offered(tab: Any) -> None:
    tab.change("**/info", lambda info: info["index"].update(components=[]))
    assert tab.titles("water", "&rerank=on")
    for part in ("#retrievers", "#filters", "#rerank-choice", "#hits .why"):
        assert not tab.page.locator(part).first.is_visible()
    assert not {"retriever", "facets", "rerank"} & set(tab.sent[0])
