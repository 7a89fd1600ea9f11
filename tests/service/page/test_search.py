"""The search page: searching, searching while the user types, and why a hit was found."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glow.feedback import read_feedback
from glow_service.api.routes import PAGE_FILES
from tests.service.asking import QUERY, Serve
from tests.until import until


def test_a_search_from_the_keyboard_shows_results_weights_and_timings(tab: Any) -> None:
    page = tab.page
    tab.open()
    page.locator("#about", has_text="50 documents").wait_for()
    page.locator("body").click()
    page.keyboard.press("/")
    page.keyboard.type("how do bees find their way home")
    page.keyboard.press("Enter")
    assert tab.titles()[0] == "Bees"
    assert page.locator("#hits > li").count() == 10
    link = page.locator("#hits > li").first.locator("a")
    assert link.get_attribute("href") == "https://www.example.org/nature/bees0.html"
    assert "sun" in page.locator("#hits .snippet").first.inner_text()
    marks = page.locator("#hits .snippet").first.locator("mark").all_inner_texts()
    assert [word.lower() for word in marks[:2]] == ["bees", "find"]
    tab.unfold("#how")
    for stage in ("queue", "preprocess", "encode", "search", "fetch"):
        assert stage in page.locator("#timings").inner_text()
    assert page.title() == "how do bees find their way home · GLOW"
    assert page.get_by_role("status").inner_text() == "10 results"


def test_words_that_no_document_holds_are_named(tab: Any) -> None:
    tab.found("bees and zzyzx")
    doubt = tab.page.locator("#doubt")
    assert "No document holds “zzyzx”." in doubt.inner_text()
    assert doubt.bounding_box()["y"] < tab.page.locator("#hits > li").first.bounding_box()["y"]
    tab.search("honey bees")
    tab.page.locator("#terms .word", has_text="honey").wait_for(state="attached")
    assert not tab.page.locator("#doubt").is_visible()


@pytest.mark.parametrize(
    ("confidence", "said"),
    [("high", None), ("low", "These may not answer your question."), ("none", "Probably nothing here answers this.")],
)  # fmt: skip
def test_results_that_may_not_answer_are_called_so(tab: Any, confidence: str, said: str | None) -> None:
    tab.change("**/search", lambda body: body.update(confidence=confidence))
    tab.found("honey bees")
    doubt = tab.page.locator("#doubt")
    assert (doubt.inner_text() if doubt.is_visible() else None) == said


def test_bars_are_as_high_as_the_weights(tab: Any) -> None:
    page = tab.page
    tab.found("how do bees find the way home", unfold="#how")
    tab.stand_still()  # the bars grow
    words = page.locator("#terms .word").all_inner_texts()
    assert words == ["how", "do", "bees", "find", "the", "way", "home"]
    known = "#terms li:not(.unknown)"
    weights = [float(text) for text in page.locator(f"{known} .rarity").all_inner_texts()]
    script = "bars => bars.map(bar => bar.getBoundingClientRect().height)"
    heights = page.eval_on_selector_all(f"{known} .bar", script)
    for weight, height in zip(weights, heights, strict=True):
        assert height == pytest.approx(max(heights) * weight / max(weights), abs=1)


def test_the_address_keeps_the_query(tab: Any) -> None:
    coffee = "Coffee beans are roasted seeds; a finer grind gives a stronger cup."
    assert tab.found(coffee)[0] == "Coffee"
    tab.search("honey bees & co")
    tab.page.wait_for_url("**/?q=honey%20bees%20%26%20co")
    tab.page.locator("#terms .word", has_text="honey").wait_for(state="attached")
    tab.page.go_back()
    tab.page.locator("#terms .word", has_text="seeds").wait_for(state="attached")
    assert tab.page.get_by_label("Search the documents").input_value() == coffee


def test_pages_lead_forward_and_back_and_hold_each_document_once(tab: Any) -> None:
    page = tab.page
    tab.open("water")
    shown = [tab.titles()]
    assert not page.get_by_role("link", name="Previous").is_visible()
    for number in (2, 3, 4, 5):
        page.get_by_role("link", name="Next").click()
        page.locator("#page", has_text=f"Page {number}").wait_for()
        shown.append(tab.titles())
        assert page.get_by_role("status").inner_text() == f"Results {number * 10 - 9} to {number * 10}"
    assert len({title for titles in shown for title in titles}) == 50
    assert not page.get_by_role("link", name="Next").is_visible()
    assert page.evaluate("document.activeElement.parentElement.id") == "how"
    assert page.url.endswith("/?q=water&page=5")
    page.reload()
    assert tab.titles() == shown[4]
    page.go_back()
    page.locator("#page", has_text="Page 4").wait_for()
    assert tab.titles() == shown[3]
    page.get_by_role("link", name="Previous").click()
    page.locator("#page", has_text="Page 3").wait_for()
    assert tab.titles() == shown[2]


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", "1e9"])
def test_an_address_with_no_such_page_shows_one_that_is(tab: Any, number: str) -> None:
    tab.open("water", f"&page={number}")
    tab.page.locator("body:not([aria-busy]) #found:not([hidden])").wait_for()
    assert re.match(r"10 results|Nothing more found", tab.page.locator("#found-title").inner_text())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling(open_page: Callable[..., Any], server: Any, scheme: str) -> None:
    with open_page(server.url, 390, color_scheme=scheme) as tab:
        tab.found("unbreakable" * 12 + " how do bees find the way home when the sun is low")
        assert not tab.is_too_wide()


def test_documents_are_shown_as_text_and_only_web_addresses_are_links(
    open_page: Callable[..., Any], build_index: Callable[..., Path], run_server: Callable[..., Any]
) -> None:
    text = '<script>bees</script> &amp; <em class="attended">not marked</em> &lt;em&gt;'
    evil = {"_id": "e", "title": "<img src=x onerror=document.title='hacked'>", "text": text}
    urls = ["javascript:alert(1)", "//x", "data:,x", "https://example.org/<b>&amp;"]
    root = build_index([{**evil, "_id": url, "url": url} for url in urls])
    with run_server("--index-root", root) as server, open_page(server.url) as tab:
        assert tab.found("bees") == [evil["title"]] * 4
        assert tab.page.locator("#hits a").all_inner_texts() == [evil["title"]]
        assert set(tab.page.locator("#hits .address").all_inner_texts()) == set(urls)
        assert tab.page.locator("#hits .snippet").all_inner_texts() == [evil["text"]] * 4
        assert tab.page.locator("#hits mark").all_inner_texts() == ["bees"] * 4
        assert tab.page.title() == "bees · GLOW"


def test_no_page_where_it_is_switched_off(serve: Serve) -> None:
    with serve(page=False) as client:
        assert client.get("/").status_code == client.get("/static/app.js").status_code == 404
        assert client.get("/healthz").status_code == 200


def test_every_file_that_the_page_names_is_served_and_no_other(http: Any) -> None:
    folder = Path(__file__).parents[3] / "service" / "page"
    assert {name for name, _ in PAGE_FILES.values()} == {path.name for path in folder.iterdir()}
    for path in PAGE_FILES:
        answer = http.get(path)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        for name in re.findall(r'(?:src|href)="(/static/[^"]+)"', answer.text):
            assert name in PAGE_FILES
        for name in re.findall(r'(?:from|import) "\./([^"]+)"', answer.text):
            assert f"/static/{name}" in PAGE_FILES


def test_a_slip_is_told_and_what_was_typed_can_be_had(tab: Any) -> None:
    tab.found("how do slamon swim")
    told = tab.page.locator("#corrected")
    assert told.inner_text() == "Showing results for how do salmon swim · search as typed"
    told.get_by_role("link").click()
    tab.page.wait_for_url("**typos=off")
    tab.page.locator("body:not([aria-busy]) #corrected[hidden]").wait_for(state="attached")
    tab.search("salmon")
    tab.page.wait_for_url("**/?q=salmon")


def test_results_can_be_read_again_and_the_address_keeps_it(full_tab: Any, tab: Any) -> None:
    page = full_tab.page
    first = full_tab.found("water and the sun")
    again = page.get_by_label("Re-rank")
    assert not again.is_checked()
    with page.expect_response("**/search"):
        again.check()
    page.wait_for_url("**&rerank=on")
    reread = full_tab.titles()
    assert reread != first
    page.get_by_role("button", name="Why this result").first.click()
    table = page.get_by_role("table", name="What the re-ranker looked at")
    table.wait_for()
    assert "text" in table.inner_text() and "re-ranked" in page.locator("#hits .scores").first.inner_text()
    page.reload()
    assert full_tab.titles() == reread and page.get_by_label("Re-rank").is_checked()
    tab.open("water and the sun", "&rerank=on")  # an index that has none
    tab.titles()
    assert tab.page.locator("#rerank-choice").is_hidden()


def test_where_nothing_is_found_other_ways_are_offered(tab: Any) -> None:
    tab.open("zzzz qqqq", "&retriever=lexical")
    tab.page.locator("#nothing").wait_for()
    links = tab.page.locator("#nothing a")
    assert links.all_inner_texts() == ["Both", "Meaning"]
    links.first.click()
    assert tab.titles()


def test_clicks_are_told_where_the_service_wants_to_know(
    open_page: Any, start_server: Callable[..., Any], toy_index: Path, tmp_path: Path
) -> None:
    path = tmp_path / "feedback.jsonl"
    flags = ("--index-root", str(toy_index), "--feedback-log", str(path))
    with start_server(tmp_path, *flags) as running, open_page(running.url) as tab:
        tab.found("how do bees find their way home")
        # Opened beside: this page stays, and somebody comes back to it.
        tab.page.route("**/nature/*", lambda route: route.abort())
        link = tab.page.locator("#hits > li").nth(1).locator("a")
        link.evaluate("link => link.addEventListener('click', event => event.preventDefault())")
        with tab.page.expect_response("**/feedback") as answered:
            link.click()
        assert answered.value.status == 202
        sent = answered.value.request.post_data_json
        assert (sent["kind"], sent["rank"]) == ("click", 2)
        tab.page.wait_for_timeout(700)
        with tab.page.expect_response("**/feedback") as again:
            tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        assert again.value.request.post_data_json["dwell_s"] > 0.5
        until(lambda: len(list(read_feedback(path))) >= 2)
    assert [each.id for each in read_feedback(path)] == [sent["id"]] * 2


def test_clicks_are_nobodys_business_elsewhere(tab: Any) -> None:
    tab.found("how do bees find their way home")
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    link = tab.page.locator("#hits > li").first.locator("a")
    link.evaluate("link => link.addEventListener('click', event => event.preventDefault())")
    link.click()
    tab.page.wait_for_timeout(300)
    assert not [url for url in asked if "feedback" in url]


# Results while a query is typed: few searches, one at a time, quiet, and nothing lost by them.

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
    titles = full_tab.found("honey bees")
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
        query.fill("x" * 10_001)
    assert refused.value.status == 422 and not full_tab.page.locator("#problem").is_visible()
    query.fill("honey bees")
    shown(full_tab, "honey bees")


def test_a_service_that_is_busy_is_not_asked_again_before_enter(open_page: Any, serve: Serve) -> None:
    with serve(rate_limit=0.1, rate_burst=2) as http, open_page(str(http.base_url)) as tab:
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


# Highlights, and why a result was found: asked for when it is opened, and not before.


def cells(tab: Any, table: str, column: str) -> list[tuple[str, str]]:
    """Each word of a table in the open explanation, with what a column says of it."""
    found = tab.page.locator(".explanation:visible .table", has_text=table).locator("table")
    heads = found.locator("thead th").all_inner_texts()
    lines = [row.locator("th, td").all_inner_texts() for row in found.locator("tbody tr:visible").all()]
    return [(line[0], line[heads.index(column)]) for line in lines]


def test_words_of_the_query_are_marked_in_text_and_title(full_tab: Any) -> None:
    assert full_tab.found(QUERY)[0] == "Bees"
    first = full_tab.page.locator("#hits > li").first
    marks = {word.lower() for word in first.locator(".snippet mark").all_inner_texts()}
    assert {"bees", "home"} <= marks and "hive" not in marks
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
    full_tab.found(QUERY)
    page.get_by_role("button", name="Why this result").first.click()
    page.locator(".explanation table").first.wait_for()
    heads = page.locator(".explanation:visible .table", has_text="Your words").locator("thead th")
    assert heads.all_inner_texts()[:2] == ["Word", "Score change"]
    assert "Weight" not in page.locator(".explanation:visible").first.inner_text()
    deltas = dict(cells(full_tab, "Your words", "Score change"))
    assert any(value not in ("–", "0.000") for value in deltas.values()) and "bees" in deltas
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
    assert not full_tab.is_too_wide()


def test_bars_of_a_table_are_as_long_as_their_numbers(full_tab: Any) -> None:
    full_tab.found(QUERY)
    full_tab.page.get_by_role("button", name="Why this result").first.click()
    full_tab.page.locator(".explanation table").first.wait_for()
    effects = [value.replace("−", "-") for _, value in cells(full_tab, "Your words", "Score change")]
    numbers = [abs(float(value)) for value in effects if value != "–"]
    shares = full_tab.shares(".explanation .table:first-of-type tbody td.measure:nth-child(2)")
    for value, share in zip(numbers, shares[: len(numbers)], strict=True):
        assert abs(value / max(numbers) - share) < 0.03


def test_an_explanation_that_fails_says_so_in_its_place_and_can_be_tried_again(full_tab: Any) -> None:
    page = full_tab.page
    full_tab.expected.append("ERR_INTERNET_DISCONNECTED")
    full_tab.found(QUERY)
    page.context.set_offline(True)
    page.get_by_role("button", name="Why this result").first.click()
    panel = page.locator(".explanation").first
    panel.get_by_text("cannot be reached").wait_for()
    assert page.locator("#hits > li").count() == 10
    page.context.set_offline(False)
    panel.get_by_role("button", name="Try again").click()
    panel.locator("table").first.wait_for()
