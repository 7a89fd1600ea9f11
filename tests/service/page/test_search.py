"""Searching from the page: results, weights, timings, pages, the address."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glow.feedback import read_feedback
from glow_service.app import create_app
from glow_service.settings import Settings
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
    tab.open("bees and zzyzx")
    tab.titles()
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
    def answer(route: Any) -> None:
        body = route.fetch().json() | {"confidence": confidence}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    tab.page.route("**/search", answer)
    tab.open("honey bees")
    tab.titles()
    doubt = tab.page.locator("#doubt")
    assert (doubt.inner_text() if doubt.is_visible() else None) == said


def test_bars_are_as_high_as_the_weights(tab: Any) -> None:
    page = tab.page
    tab.open("how do bees find the way home")
    tab.titles()
    tab.unfold("#how")
    tab.stand_still()  # the bars grow
    words = page.locator("#terms .word").all_inner_texts()
    assert words == ["how", "do", "bees", "find", "the", "way", "home"]
    known = "#terms li:not(.unknown)"
    weights = [float(text) for text in page.locator(f"{known} .rarity").all_inner_texts()]
    heights = page.eval_on_selector_all(
        f"{known} .bar", "bars => bars.map(bar => bar.getBoundingClientRect().height)"
    )
    for weight, height in zip(weights, heights, strict=True):
        assert height == pytest.approx(max(heights) * weight / max(weights), abs=1)


def test_the_address_keeps_the_query(tab: Any) -> None:
    coffee = "Coffee beans are roasted seeds; a finer grind gives a stronger cup."
    tab.open(coffee)
    assert tab.titles()[0] == "Coffee"
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
        tab.open("unbreakable" * 12 + " how do bees find the way home when the sun is low")
        tab.titles()
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_documents_are_shown_as_text_and_only_web_addresses_are_links(
    open_page: Callable[..., Any], build_index: Callable[..., Path], run_server: Callable[..., Any]
) -> None:
    evil = {
        "_id": "e",
        "title": "<img src=x onerror=document.title='hacked'>",
        "text": '<script>bees</script> &amp; <em class="attended">not marked</em> &lt;em&gt;',
    }
    urls = ["javascript:alert(1)", "//x", "data:,x", "https://example.org/<b>&amp;"]
    root = build_index([{**evil, "_id": url, "url": url} for url in urls])
    with run_server("--index-root", root) as server, open_page(server.url) as tab:
        tab.open("bees")
        assert tab.titles() == [evil["title"]] * 4
        assert tab.page.locator("#hits a").all_inner_texts() == [evil["title"]]
        assert set(tab.page.locator("#hits .address").all_inner_texts()) == set(urls)
        assert tab.page.locator("#hits .snippet").all_inner_texts() == [evil["text"]] * 4
        assert tab.page.locator("#hits mark").all_inner_texts() == ["bees"] * 4
        assert tab.page.title() == "bees · GLOW"


def test_no_page_where_it_is_switched_off(toy_index: Path, serve_app: Callable[..., Any]) -> None:
    with serve_app(create_app(Settings(index_root=toy_index, page=False), on_failure=lambda: None)) as client:
        assert client.get("/").status_code == client.get("/static/app.js").status_code == 404
        assert client.get("/healthz").status_code == 200


def test_every_file_that_the_page_names_is_served_and_no_other(http: Any) -> None:
    from glow_service.api.page import PAGE_FILES

    folder = Path(__file__).parent.parent.parent.parent / "service" / "page"
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
    tab.open("how do slamon swim")
    tab.titles()
    told = tab.page.locator("#corrected")
    assert told.inner_text() == "Showing results for how do salmon swim · search as typed"
    told.get_by_role("link").click()
    tab.page.wait_for_url("**typos=off")
    tab.page.locator("body:not([aria-busy]) #corrected[hidden]").wait_for(state="attached")
    tab.search("salmon")
    tab.page.wait_for_url("**/?q=salmon")


def test_results_can_be_read_again_and_the_address_keeps_it(full_tab: Any, tab: Any) -> None:
    page = full_tab.page
    full_tab.open("water and the sun")
    first = full_tab.titles()
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
        tab.open("how do bees find their way home")
        tab.titles()
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
    tab.open("how do bees find their way home")
    tab.titles()
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    link = tab.page.locator("#hits > li").first.locator("a")
    link.evaluate("link => link.addEventListener('click', event => event.preventDefault())")
    link.click()
    tab.page.wait_for_timeout(300)
    assert not [url for url in asked if "feedback" in url]
