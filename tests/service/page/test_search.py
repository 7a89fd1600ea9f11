"""The search page: searching, searching while the user types, and why a hit was found."""

import re
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from glow.query_log import read_feedback
from glow.search import RETRIEVERS
from glow.text.analyzer import STOP_WORDS
from glow_service.api.routes import PAGE_FILES
from tests.service.asking import QUERY
from tests.until import until

PAGE = Path(__file__).parents[3] / "service" / "page"


def test_a_visitor_searches_with_the_keyboard_and_reads_what_was_found(tab: Any) -> None:
    page, query = tab.page, "how do bees find their way home"
    tab.open()
    page.locator("#about", has_text="50 documents").wait_for()
    page.locator("body").click()
    page.keyboard.press("/")
    page.keyboard.type(query)
    page.keyboard.press("Enter")
    titles = tab.titles()
    assert titles[0] == "Bees" and 1 < len(titles) < 10
    assert page.title() == f"{query} · GLOW"
    assert page.get_by_role("status").inner_text() == f"{len(titles)} results"
    first = page.locator("#hits > li").first
    assert first.locator("a").get_attribute("href") == "https://www.example.org/nature/bees0.html"
    assert first.locator("h3 mark").all_inner_texts() == ["Bees"]
    assert "by the sun" in first.locator(".snippet").inner_text()
    marks = {word.lower() for word in first.locator(".snippet mark").all_inner_texts()}
    assert {"bees", "home"} <= marks and not marks & (STOP_WORDS | {"hive"})
    assert re.fullmatch(r"\d+ % likely|score [\d.]+", first.locator(".score").inner_text())
    line = page.locator("#how summary")
    assert re.fullmatch(rf"{len(titles)} results in \d+ ms · how this was searched", line.inner_text())
    details = [page.locator(part).first for part in ("#terms", "#timings", "#hits .parts")]
    assert [part.is_visible() for part in details] == [False] * 3
    line.click()
    assert [part.is_visible() for part in details] == [True] * 3
    stages = page.locator("#timings dt").all_inner_texts()
    assert {"queue", "preprocess", "encode", "search", "fetch"} <= set(stages)
    assert page.locator("#terms .word").all_inner_texts() == query.split()
    # Nobody wants to know of this click: `tab` fails where it is sent.
    page.evaluate("addEventListener('click', event => event.preventDefault())")
    first.locator("a").click()
    tab.search("how do the")
    tab.shown("how do the")
    marks = {word.lower() for word in page.locator("#hits mark").all_inner_texts()}
    assert "the" in marks, "a query of stop words alone marks them"
    assert details[0].is_visible(), "what was unfolded stays so"


def test_the_address_keeps_query_and_page(tab: Any) -> None:
    page = tab.page
    coffee = "Coffee beans are roasted seeds; a finer grind gives a stronger cup."
    assert tab.titles(coffee)[0] == "Coffee"
    tab.search("water & co")
    tab.shown("water & co")
    page.go_back()
    page.locator("#terms .word", has_text="seeds").wait_for(state="attached")
    assert page.get_by_label("Search the documents").input_value() == coffee
    shown = [tab.titles("water")]
    assert not page.get_by_role("link", name="Previous").is_visible()
    for number in (2, 3, 4, 5):
        page.get_by_role("link", name="Next").click()
        page.locator("#page", has_text=f"Page {number}").wait_for()
        shown.append(tab.titles())
        assert page.get_by_role("status").inner_text() == f"Results {number * 10 - 9} to {number * 10} of 50"
    assert len({title for titles in shown for title in titles}) == 50
    assert not page.get_by_role("link", name="Next").is_visible()
    assert tab.focus() == "how" and page.url.endswith("/?q=water&page=5")
    page.reload()
    assert tab.titles() == shown[4]
    page.get_by_role("link", name="Previous").click()
    page.locator("#page", has_text="Page 4").wait_for()
    assert tab.titles() == shown[3]
    assert tab.titles("water", "&page=-1") == tab.titles("water", "&page=1.5") == shown[0], "there is none"
    tab.open("water", "&page=1e9")
    page.locator("#found-title", has_text="Nothing more found").wait_for()
    assert not page.locator("#nothing").is_visible(), "other words are of no help there"
    tab.change("**/info", lambda info: info["settings"].update(max_top_k=10))
    assert tab.titles("water", "&page=5") == shown[4]
    assert not page.get_by_role("link", name="Next").is_visible(), "it is the last page"


def test_what_is_doubtful_is_said(tab: Any) -> None:
    page = tab.page
    tab.titles("bees and zzyzx")
    doubt, corrected = page.locator("#doubt"), page.locator("#corrected")
    assert "No document holds “zzyzx”." in doubt.inner_text()
    assert doubt.bounding_box()["y"] < page.locator("#hits > li").first.bounding_box()["y"]
    tab.search("how do slamon swim")
    page.get_by_text("Showing results for how do salmon swim · search as typed").wait_for()
    assert not doubt.is_visible()
    corrected.get_by_role("link").click()
    page.wait_for_url("**typos=off")
    page.locator("body:not([aria-busy]) #corrected[hidden]").wait_for(state="attached")
    tab.open("zzzz qqqq", "&retriever=lexical")
    others = page.locator("#nothing a")
    others.first.wait_for()
    assert others.all_inner_texts() == ["Both", "Meaning"]
    others.first.click()
    page.wait_for_url("**/?q=zzzz%20qqqq")
    page.locator("body:not([aria-busy])").wait_for()
    assert page.get_by_role("status").inner_text() == "Nothing found"
    assert doubt.inner_text() == "No document holds “zzzz”, “qqqq”."
    assert "Use other words" in page.locator("#nothing").inner_text()
    assert others.all_inner_texts() == ["Meaning"]
    changed: dict[str, Any] = {"total": 1_234}
    tab.change("**/search", lambda body: body.update(changed))
    for query, confidence, text in (
        ("bees", "high", ""),
        ("honey", "low", ""),
        ("water", "none", "Probably nothing here answers this."),
    ):
        changed["confidence"] = confidence
        tab.search(query)
        tab.shown(query)
        assert page.get_by_role("status").inner_text() == "1,234 results"
        assert (doubt.inner_text() if doubt.is_visible() else "") == text
        assert re.fullmatch(r"\d+ % likely", page.locator("#hits .score").first.inner_text())


SNIPPETS = (
    ("bees(hive)\n\nA [hive]. The [bees] find [home]. More.", "… The bees find home. More."),
    ("[Bees]. More.|… of them, [bees] go [home] …", "… of them, bees go home …"),
    ("The [home] of [bees]. It is [homes] [bee] by [bees].", "The home of bees. It is homes bee by bees."),
    ("Nothing here. Nor there.", "Nothing here. Nor there."),
)


def test_a_snippet_begins_with_the_sentence_that_matches_best(tab: Any) -> None:
    def change(body: Any) -> None:
        first, body["hits"] = body["hits"][0], []
        for text, _ in SNIPPETS:
            marked = text.replace("[", "<em>").replace("]", "</em>").split("|")
            hit = {"highlights": {"text": marked}, "fields": {"title": "How bees find the home"}}
            body["hits"].append(first | hit)

    tab.change("**/search", change)
    tab.titles(QUERY)
    for place, (text, shown) in enumerate(SNIPPETS):
        hit = tab.page.locator("#hits > li").nth(place)
        assert hit.locator(".snippet").inner_text() == shown
        assert hit.locator("h3 mark").all_inner_texts() == ["bees", "find", "home"]
        marks = set(hit.locator(".snippet mark").all_inner_texts())
        assert not marks & STOP_WORDS and bool(marks) == ("[" in text)


# Results while a query is typed: few searches, one at a time, quiet, and nothing lost by them.

KEY_MS, PAUSE_MS, SETTLE_MS = 20, 200, 1_100
"""Time between two keys, and a little more than the pauses after which the page searches and announces results."""


def begin(tab: Any, query: str = "") -> None:
    """Opens the page, with a clock that only the test moves."""
    tab.page.clock.install(time=0)
    tab.open(query)
    tab.page.locator("#hits > li" if query else "#examples a").first.wait_for()
    tab.page.clock.pause_at(3_600)
    tab.page.keyboard.press("End")
    tab.sent.clear()


def type_and_pause(tab: Any, text: str) -> None:
    for letter in text:
        tab.page.keyboard.insert_text(letter)
        tab.page.clock.run_for(KEY_MS)
    tab.page.clock.run_for(PAUSE_MS)


def queries(tab: Any) -> list[str]:
    """What was searched since the test began to type."""
    return [body["query"] for body in tab.sent if "explain" not in body]


def test_a_pause_shows_results_quietly_and_enter_sends_nothing_again(tab: Any) -> None:
    page = tab.page
    begin(tab)
    page.locator("#status").evaluate(
        "status => { window.heard = [];"
        "new MutationObserver(() => heard.push(status.textContent)).observe(status, {childList: true}) }"
    )
    type_and_pause(tab, "zzyzx bees")
    tab.shown("zzyzx bees")
    type_and_pause(tab, " eat")
    tab.shown("zzyzx bees eat")
    assert tab.focus() == "query"
    assert page.evaluate("heard") == [] and not page.locator("#doubt").is_visible()
    page.clock.run_for(SETTLE_MS)
    assert page.evaluate("heard") == [page.locator("#found-title").inner_text().partition(" in ")[0]]
    assert "zzyzx" in page.locator("#doubt").inner_text()
    page.keyboard.press("Enter")
    page.clock.run_for(SETTLE_MS)
    page.go_back()
    page.locator("#welcome").wait_for()
    assert page.get_by_label("Search the documents").input_value() == ""
    type_and_pause(tab, "owls")
    tab.shown("owls")
    assert queries(tab) == ["zzyzx bees", "zzyzx bees eat", "owls"]


def test_a_search_is_dropped_for_a_newer_one_and_for_steps_through_the_results(tab: Any) -> None:
    page = tab.page
    begin(tab)
    held: list[Any] = []
    slow = ("honey", "honey bees eat")

    def hold(route: Any) -> None:
        held.append(route) if route.request.post_data_json["query"] in slow else route.continue_()

    page.route("**/search", hold)
    with page.expect_request("**/search"):
        type_and_pause(tab, "honey")
    type_and_pause(tab, " bees")
    titles = tab.shown("honey bees")
    held.pop().continue_()
    tab.settle()
    assert page.locator("#terms .word").all_text_contents() == ["honey", "bees"]
    with page.expect_request("**/search"):
        type_and_pause(tab, " eat")
    page.keyboard.press("Escape")  # closes the suggestions
    page.keyboard.press("ArrowDown")
    with page.expect_response("**/search"):
        held.pop().continue_()
    page.wait_for_url("**/?q=honey%20bees&prefix=on")
    assert tab.focus() == titles[0]
    assert queries(tab) == ["honey", "honey bees", "honey bees eat"]


def test_the_last_word_is_completed_until_enter_and_suggestions_are_worked_with_keys(tab: Any) -> None:
    page = tab.page
    tab.open()
    page.keyboard.type("be")
    tab.shown("be")
    assert tab.sent[-1]["prefix"] is True
    options = page.get_by_role("listbox", name="Suggestions").get_by_role("option")
    query = page.get_by_role("combobox", name="Search the documents")
    options.first.wait_for()
    texts = options.all_inner_texts()
    assert "bees" in " ".join(texts).lower() and query.get_attribute("aria-expanded") == "true"
    assert tab.findings() == []
    for key, place in (("ArrowDown", 0), ("ArrowUp", -1), ("ArrowUp", len(texts) - 1), ("ArrowDown", -1)):
        page.keyboard.press(key)
        chosen = query.get_attribute("aria-activedescendant")
        assert chosen == (f"suggestion-{place}" if place >= 0 else None) and tab.focus() == "query"
    page.keyboard.press("Escape")
    assert options.count() == 0 and query.input_value() == "be"
    page.keyboard.type("e")
    options.first.wait_for()
    page.keyboard.press("ArrowDown")
    text = options.first.inner_text()
    page.keyboard.press("Enter")
    assert tab.shown(text) and query.input_value() == text and "prefix" not in tab.sent[-1]
    assert "prefix" not in page.url and options.count() == 0
    page.keyboard.press("ArrowDown")
    assert tab.focus() == tab.titles()[0], "without suggestions, arrows step through the results"


def test_what_is_refused_while_typing_is_passed_over(tab: Any) -> None:
    page = tab.page
    tab.expected += ["422", "429"]
    begin(tab, "bees")
    titles = tab.titles()
    query = page.get_by_label("Search the documents")
    with page.expect_response(lambda response: response.status == 422):
        query.fill("x" * 10_001)
        page.clock.run_for(PAUSE_MS)
    query.fill("honey")
    page.clock.run_for(PAUSE_MS)
    assert tab.shown("honey") != titles, "another query may be searched"
    page.route("**/search", lambda route: route.fulfill(status=429, json={"title": "Too many"}))
    tab.sent.clear()
    with page.expect_response("**/search"):
        type_and_pause(tab, " a")
    tab.settle()
    for letter in "bcd":
        type_and_pause(tab, letter)
    assert not page.locator("#problem").is_visible()
    page.unroute("**/search")
    page.keyboard.press("Enter")
    tab.shown("honey abcd")
    assert queries(tab) == ["honey a", "honey abcd"], "a busy service is not asked again before Enter"


# Why a result was found: asked for when it is opened, and not before.


def columns(tab: Any, table: str) -> dict[str, list[str]]:
    """The visible cells of a table in the open explanation, by the head of their column."""
    found = tab.page.locator(".explanation:visible .table", has_text=table).locator("table")
    rows = [row.locator("th, td").all_inner_texts() for row in found.locator("tr:visible").all()]
    return {head: list(cells) for head, *cells in zip(*rows, strict=True)}


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.replace("−", "-")) for cell in cells if cell != "–"]


def test_an_explanation_is_asked_for_once_and_says_what_each_word_did(tab: Any) -> None:
    page = tab.page
    tab.expected.append("ERR_INTERNET_DISCONNECTED")
    titles = tab.titles(QUERY)
    buttons = page.get_by_role("button", name="Why this result")
    region = page.get_by_role("region", name=f"Why “{titles[1]}” was found")
    assert buttons.count() == len(titles)
    tab.explain(1)
    region.locator("table").first.wait_for()
    for is_open in (False, True, False):
        buttons.nth(1).click()
        assert region.is_visible() == is_open
        assert buttons.nth(1).get_attribute("aria-expanded") == str(is_open).lower()
    page.context.set_offline(True)
    buttons.first.click()
    panel = page.locator(".explanation").first
    panel.get_by_text("cannot be reached").wait_for()
    assert page.locator("#hits > li").count() == len(titles)
    page.context.set_offline(False)
    panel.get_by_role("button", name="Try again").click()
    panel.get_by_text(re.compile(r"^Found by (bees|find|way|home|, )+; the title matches\.$")).wait_for()
    assert not panel.locator("table").first.is_visible()
    panel.get_by_text("Scores and words").click()
    asked = [(body["top_k"], body["offset"], body["explain"]) for body in tab.sent if "explain" in body]
    once = {"leave_one_out": True}
    assert asked == [(1, 1, once), (1, 0, once), (1, 0, once)]

    words = columns(tab, "Your words")
    assert list(words)[:2] == ["Word", "Score change"] and "Weight" not in panel.inner_text()
    assert set(words["Word"]) == set(QUERY.split()) - STOP_WORDS
    assert any(numbers(words["Score change"])) and any(numbers(words["Attention"]))
    looked = columns(tab, "Words of the document")
    attention = numbers(looked["Attention"])
    assert "text" in looked["Field"] and attention == sorted(attention, reverse=True)
    panel.get_by_role("button", name="Show all").click()
    assert len(columns(tab, "Words of the document")["Field"]) > len(attention)


# Filters, facets, the order, and the choice of how to search.


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
    tab.expected.append("422")
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
    tab.open("water", "&f.year=1900..1901")
    page.locator("#nothing", has_text="No results match these filters").wait_for()
    assert page.locator("#found-title").inner_text().startswith("Nothing found")
    tab.open("water", "&f.nope=1")
    assert "nope" in tab.alert() and "lang" in tab.alert()


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


# What an index and a service's settings and files make of the page.


def test_what_an_index_lacks_is_not_offered_and_fields_in_use_come_first(tab: Any) -> None:
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
    tab.page.unroute_all()
    tab.change("**/info", lambda info: info["index"].update(components=[]))
    assert tab.titles("water", "&rerank=on")
    for part in ("#retrievers", "#filters", "#rerank-choice", "#hits .why"):
        assert not tab.page.locator(part).first.is_visible()
    assert not {"retriever", "facets", "rerank"} & set(tab.sent[-1])


def test_settings_choose_examples_filters_groups_and_feedback(
    open_page: Any, serve: Any, full_index: Path, tmp_path: Path
) -> None:
    path = tmp_path / "feedback.jsonl"
    settings = {"page_examples": "do bees sleep | why is the sea salty|", "page_group_by": "lang:2"}
    settings |= {"page_filters": "year, lang,nothing", "feedback_log": str(path)}
    with serve(full_index, **settings) as http, open_page(http.base_url) as tab:
        page = tab.page
        tab.expected.append("/feedback")
        page.clock.install()
        tab.open()
        page.locator("#examples a").first.wait_for()
        assert page.locator("#examples a").all_inner_texts() == ["do bees sleep", "why is the sea salty"]
        assert len(tab.titles("water")) == 6
        assert page.get_by_role("status").inner_text() == "50 results, at most 2 per lang"
        langs = [text for text in page.locator("#hits .fact").all_inner_texts() if text.startswith("lang")]
        assert sorted(langs) == ["lang de"] * 2 + ["lang en"] * 2 + ["lang fr"] * 2
        legends = page.locator("#filters legend").all_inner_texts()
        assert [text.split()[0] for text in legends] == ["year", "lang"]
        tab.explain(5)
        # Opened beside: this page stays, and somebody comes back to it.
        page.evaluate("addEventListener('click', event => event.preventDefault())")
        with page.expect_response("**/feedback") as clicked:
            page.locator("#hits a").nth(1).click()
        assert clicked.value.status == 202
        sent = clicked.value.request.post_data_json
        assert (sent["kind"], sent["rank"]) == ("click", 2)
        page.clock.fast_forward(5_000)
        with page.expect_response("**/feedback") as again:
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        assert again.value.request.post_data_json["dwell_s"] >= 5
        until(lambda: len(list(read_feedback(path))) >= 2)
        assert [each.id for each in read_feedback(path)] == [sent["id"]] * 2
        # What is not offered can still stand in the address.
        tab.titles("water", "&f.short=true")
        assert page.get_by_label("Remove filter short: true").is_visible()


def test_every_file_that_the_page_names_is_served_and_no_other(make_app: Any, toy_index: Path) -> None:
    client, without = TestClient(make_app(toy_index)), TestClient(make_app(toy_index, page=False))
    assert {name for name, _ in PAGE_FILES.values()} == {path.name for path in PAGE.iterdir()}
    for path in PAGE_FILES:
        response = client.get(path)
        assert response.status_code == 200
        assert "default-src 'none'" in response.headers["content-security-policy"]
        names = re.findall(r'(?:(?:src|href)="/static|(?:from|import) "\.)/([^"]+)"', response.text)
        assert {f"/static/{name}" for name in names} <= set(PAGE_FILES)
        assert without.get(path).status_code == 404


def test_the_page_knows_every_retriever_and_the_stop_words_of_the_index() -> None:
    retrievers = re.findall(r'name="retriever" value="([\w-]+)"', (PAGE / "index.html").read_text())
    assert sorted(retrievers) == sorted(RETRIEVERS)
    names = re.search(r"RETRIEVER_NAMES = {(.*)}", (PAGE / "results.js").read_text())
    assert names and all(re.search(rf'"?{name}"?: ', names[1]) for name in retrievers)
    words = re.findall(r'^ {4}"([a-z ]+)",$', (PAGE / "stop-words.js").read_text(encoding="utf-8"), re.M)
    assert set(" ".join(words).split()) == STOP_WORDS
