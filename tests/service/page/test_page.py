"""The search page and /docs: the keyboard, layout, accessibility, keys, failures, and documents that strangers wrote."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator

from glow_service.api.routes import ROUTES
from tests.made_index import made, write
from tests.service.asking import QUERY
from tests.service.page.conftest import NARROW, WIDE

MOST_SHIFT = 0.05
"""Cumulative layout shift: web.dev calls 0.1 good."""
WATCH = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) if (!each.hadRecentInput) window.shift += each.value;
}).observe({ type: "layout-shift", buffered: true });
"""


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_jumps_while_results_come(tab: Any, size: Any) -> None:
    page = tab.page
    page.set_viewport_size(size)
    page.add_init_script(WATCH)
    tab.open()
    page.locator("#examples a").first.wait_for()
    page.keyboard.type("zzyzx honey bees")
    page.locator("#status", has_text=re.compile(r"\d\d results")).wait_for()
    assert page.evaluate("shift") < MOST_SHIFT
    tab.titles("zzyzx honey bees", "&f.short=true")
    tab.stand_still()
    assert page.evaluate("shift") < MOST_SHIFT
    assert page.locator(".tick").first.is_visible() == (size == WIDE), "filters are folded on a phone"
    page.evaluate("document.body.style.paddingTop = '300px'")  # a jump is noticed
    page.wait_for_function(f"() => shift > {MOST_SHIFT}")


def test_keys_step_through_results_open_and_explain_them(tab: Any) -> None:
    page = tab.page
    tab.open()
    page.keyboard.type("jake/e")
    assert page.get_by_label("Search the documents").input_value() == "jake/e", "letters are letters"
    tab.search("water")
    titles = tab.shown("water")
    for key, place in (("ArrowDown", 0), ("ArrowDown", 1), ("j", 2), ("k", 1), ("ArrowUp", 0)):
        page.keyboard.press(key)
        assert tab.focus() == titles[place]
    ring = page.locator("#hits > li:has([data-step]:focus)")
    ring = ring.evaluate("li => [getComputedStyle(li).outlineStyle, getComputedStyle(li).overflow]")
    assert ring == ["solid", "visible"], "the focus is shown around the whole result"
    page.keyboard.press("e")
    region = page.get_by_role("region", name=f"Why “{titles[0]}” was found")
    region.get_by_text("Scores and words").wait_for()
    page.keyboard.press("Escape")
    assert not region.is_visible() and tab.focus() == titles[0]
    page.keyboard.press("ArrowUp")
    assert tab.focus() == "query"
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    assert tab.focus() == titles[-1]
    page.route("https://www.example.org/**", lambda route: route.abort())
    tab.expected.append("ERR_FAILED")
    with page.expect_request(page.locator("#hits .address").last.inner_text()):
        page.keyboard.press("Enter")
    tab.wrong.clear()  # the document's own address


def test_axe_finds_nothing_wrong_in_any_state(tab: Any) -> None:
    page = tab.page
    tab.expected.append("422")
    tab.open()
    page.locator("#examples a").first.wait_for()
    assert tab.findings() == []
    tab.titles(f"{'unbreakable' * 12} zzyzx {QUERY}", "&f.short=true")
    page.locator("#doubt", has_text="zzyzx").wait_for()
    page.locator("#how summary").click()
    tab.explain()
    page.get_by_role("columnheader", name="Score change").wait_for()
    assert tab.findings() == []
    tab.open("zzzz qqqq", "&retriever=lexical")
    page.locator("#nothing a").first.wait_for()
    assert tab.findings() == []
    page.goto("/?id=toy/0")
    page.locator("#document h2").wait_for()
    assert tab.findings() == []
    tab.search("x" * 10_001)
    tab.alert()
    assert tab.findings() == []
    page.evaluate("document.querySelector('label.unseen').remove()")
    page.evaluate("document.getElementById('query').removeAttribute('placeholder')")
    assert any("critical label" in finding for finding in tab.findings()), "axe finds what is wrong"


# `/docs`: every route with its fields and responses, forms that send, under the page's own policy.


def test_docs_show_every_route_and_send_requests(tab: Any) -> None:
    page = tab.page
    tab.expected.append("422")

    def sent(operation: Locator, status: int) -> Any:
        operation.get_by_role("button", name="Send").click()
        response = operation.locator("pre", has_text=re.compile(rf"^{status}[^{{]*{{"))
        return json.loads(response.inner_text().partition("\n\n")[2])

    page.goto("/docs#post_search")
    page.locator("details").first.wait_for()
    script = "all => all.map(one => [...one.querySelectorAll('code')].map(code => code.innerText))"
    shown = [tuple(pair) for pair in page.eval_on_selector_all("details summary", script)]
    routes = {(route.method, min(route.paths, key=len).replace(":path", "")) for route in ROUTES}
    assert set(shown) == routes and len(shown) == len(routes)
    groups = page.locator("#groups h2").all_inner_texts()
    assert groups[0] == "search" and "admin" in groups
    search, document = page.locator("#post_search"), page.locator("#get_document")
    rows = {row.locator("th").inner_text(): row.inner_text() for row in search.locator("tbody tr").all()}
    assert '"dense" or "lexical" or "learned-sparse" or "hybrid"' in rows["retriever"]
    assert "max_top_k" in rows["top_k"]
    assert sent(search, 200)["hits"]
    assert tab.findings() == []
    search.get_by_label("Body").fill('{"query": 1}')
    assert sent(search, 422)["code"]
    document.locator("summary").click()
    document.get_by_label("id").fill("toy/0")
    assert sent(document, 200)["id"] == "toy/0"


# A key, examples on the start page, and what is said where a search fails.

KEY = "the-key-of-this-test"


def test_a_key_is_asked_for_replaced_where_it_is_wrong_and_stays_in_its_tab(
    open_page: Any, serve: Any, full_index: Path
) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    with serve(full_index, api_keys=f"tester:{digest}") as http, open_page(http.base_url) as tab:
        page, field = tab.page, tab.page.get_by_label("API key", exact=True)
        tab.expected += ["401", "403"]
        tab.open()
        assert "needs a key" in tab.alert() and tab.focus() == "key"
        page.keyboard.type("a/b")
        assert field.input_value() == "a/b"
        tab.open(QUERY)
        assert "needs a key" in tab.alert() and tab.focus() == "key"
        assert not page.get_by_role("button", name="Try again").is_visible()
        keys: set[str | None] = set()
        page.on(
            "request", lambda each: each.url.endswith(".svg") or keys.add(each.headers.get("authorization"))
        )
        for text in ("ключ", "two words", "тhe-key"):
            field.fill(text)
            page.keyboard.press("Enter")
            page.get_by_text("That is no key").wait_for()
        field.fill("nonsense")
        page.keyboard.press("Enter")
        page.get_by_text("The key was refused").wait_for()
        assert page.evaluate("sessionStorage.length") == 0 and tab.focus() == "key"
        field.fill(f" {KEY} ")
        page.keyboard.press("Enter")
        assert tab.titles()[0] == "Bees"
        page.locator("#about", has_text="50 documents").wait_for()
        assert not page.locator("#problem").is_visible()
        assert keys == {"Bearer nonsense", f"Bearer {KEY}"}, "what cannot be a key is not sent"
        page.reload()
        assert tab.titles()
        kept = "[Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]"
        session, local, cookie, address = page.evaluate(kept)
        assert (session, local, cookie) == ([KEY], [], "") and KEY not in address + page.content()
        assert field.input_value() == ""
        other = page.context.new_page()
        other.goto("/?q=bees")
        other.locator("#problem", has_text="needs a key").wait_for()
        other.goto("/docs#get_info")
        send = other.locator("#get_info").get_by_role("button", name="Send")
        send.click()
        other.locator("#get_info pre", has_text="401").wait_for()
        other.get_by_label("API key (if required)").fill(KEY)
        other.get_by_role("button", name="Use key").click()
        other.get_by_text("The key is used from now on.").wait_for()
        send.click()
        other.locator("#get_info pre", has_text="200").wait_for()


def test_it_begins_with_queries_that_led_to_documents_else_headings_drawn_anew(
    tab: Any, toy_corpus: Path
) -> None:
    page, examples = tab.page, tab.page.locator("#examples a")
    clicked: list[str] = []
    tab.change(
        "**/search", lambda body: [hit["fields"].update(clicked_queries=clicked) for hit in body["hits"]]
    )
    titles = {json.loads(line)["title"] for line in toy_corpus.read_text(encoding="utf-8").splitlines()}
    seen = set[str]()
    for _ in range(3):
        tab.open()
        examples.first.wait_for()
        assert 1 <= examples.count() <= 4
        seen |= set(examples.all_inner_texts())
    assert seen <= titles and len(seen) > 4 and len({str(body["vector"]) for body in tab.sent}) == 3
    clicked += ["what do bees eat", "x" * 61]
    tab.open()
    examples.first.wait_for()
    assert examples.all_inner_texts() == ["what do bees eat"]
    examples.first.click()
    tab.shown("what do bees eat")
    assert page.locator("#examples").is_hidden()
    assert page.get_by_label("Search the documents").input_value() == "what do bees eat"


def test_a_refusal_and_a_lost_connection_say_what_to_do(tab: Any) -> None:
    page = tab.page
    tab.expected += ["422", "ERR_INTERNET_DISCONNECTED"]
    tab.open()
    tab.search("x" * 10_001)
    text = tab.alert()
    assert page.locator("#problem").get_attribute("role") == "alert"
    assert all(part in text for part in ("too long", "at most 10000", "Change the query"))
    again = page.get_by_role("button", name="Try again")
    assert not again.is_visible()
    tab.search("honey")
    tab.shown("honey")
    assert not page.locator("#problem").is_visible()
    page.context.set_offline(True)
    tab.search("bees")
    text = tab.alert()
    assert "cannot be reached" in text and "Check that it runs" in text
    assert not page.locator("#found").is_visible()
    page.context.set_offline(False)
    again.click()
    tab.shown("bees")
    assert not page.locator("#problem").is_visible()


def test_a_service_that_is_not_ready_or_busy_is_asked_again_by_itself(
    open_page: Any, serve: Any, tmp_path: Path
) -> None:
    with serve(tmp_path, wait=False) as http, open_page(http.base_url) as tab:
        tab.expected.append("503")
        tab.open("bees")
        assert "Not ready yet" in tab.alert()
        with tab.page.expect_response("**/info") as asked:
            tab.page.get_by_text(re.compile(r"Trying again in \d+ s")).wait_for()
        assert asked.value.status == 503
    with serve(rate_limit=0.2, rate_burst=2) as http, open_page(http.base_url) as tab:
        tab.expected.append("429")
        assert tab.titles("bees")
        while http.get("/info").status_code != 429:  # what the burst has left
            pass
        tab.search("honey")
        assert "Too many requests" in tab.alert()
        tab.page.get_by_text(re.compile(r"Trying again in \d+ s")).wait_for()
        assert tab.page.get_by_role("button", name="Try again").is_visible()
        tab.shown("honey")
        assert not tab.page.locator("#problem").is_visible()
        busy = {"status": 429, "headers": {"Retry-After": "500"}, "json": {"detail": "Wait."}}
        tab.page.route("**/search", lambda route: route.fulfill(**busy))
        tab.search("water")
        assert "Wait 9 minutes" in tab.alert(), "a long wait is told and not counted down"
        assert not tab.page.locator("#countdown").is_visible()


# Documents that strangers wrote are shown as text, and nothing more.

HIT = "window.hostile=1"
PAYLOADS = (
    f"<script>{HIT}</script>",
    f"<img src=x onerror='{HIT}'>",
    f"<svg onload={HIT}><animate onbegin={HIT}>",
    f"<a href='javascript:{HIT}'>link</a>",
    f"<iframe srcdoc='<script>parent.{HIT}</script>'></iframe>",
    f"&lt;script&gt;{HIT}&lt;/script&gt;",
    f"&amp;lt;img src=x onerror={HIT}&amp;gt;",
    f"<em>zebra</em><img src=x onerror={HIT}>",
    f"</textarea></title></style></script><script>{HIT}</script>",
    f"<style>@import 'http://hostile.example/{HIT}';body{{display:none}}</style>",
    "<meta http-equiv=refresh content='0;url=http://hostile.example/'>",
    "<base href='http://hostile.example/'>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={HIT}>",
    f"${{{HIT}}} {{{{constructor.constructor('{HIT}')()}}}}",
    "\u202ezebra\u202c \u0000 \ufeff \u2028 \u2029",
    "zebra" * 4_000,
    "Z̸" * 3_000,
)
ADDRESSES = (
    f"javascript:{HIT}",
    f"JaVaScRiPt:{HIT}",
    f"java\tscript:{HIT}",
    f"data:text/html,<script>{HIT}</script>",
    f"blob:http://127.0.0.1/{HIT}",
    "//hostile.example/x",
    f'https://hostile.example/"onmouseover="{HIT}',
    f"https://hostile.example/'><script>{HIT}</script>",
    f"https://user:{HIT}@hostile.example:99999/",
    "http://[::1",
    "https://hostile.example/" + "a" * 5_000,
)
INHERITED = ("constructor", "__proto__", "toString", "hasOwnProperty", "valueOf", "__defineGetter__")
"""Names of metadata that every object of JavaScript inherits."""
NAMES = ("plain", "<img src=x onerror=1>", "quote\"'", "java script", "percent%2e%2e", "hash#q?x")
WEB = "https://example.org/<b>&amp;"
EXACT = {
    "title": "<img src=x onerror=document.title='hacked'>",
    "text": '<script>quagga</script> &amp; <em class="attended">not marked</em> &lt;em&gt;',
}
HARMLESS = """
() => ({
  ran: window.hostile ?? null,
  elements: document.querySelectorAll(":is(#hits, #document) :is(script, iframe, img, object, embed, form, svg, math, style, link, meta, base)").length,
  handlers: [...document.querySelectorAll(":is(#hits, #document) *")].flatMap((one) => one.getAttributeNames()).filter((name) => name.startsWith("on")),
  links: [...document.querySelectorAll(":is(#hits, #document) a")].map((one) => one.protocol).filter((scheme) => !["http:", "https:"].includes(scheme)),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  visible: getComputedStyle(document.body).display !== "none",
})
"""
SAFE = {"ran": None, "elements": 0, "handlers": [], "links": [], "wide": 0, "visible": True}


@pytest.fixture
def hostile_index(tmp_path: Path, toy_model: Path) -> Path:
    """An index root of hostile texts, addresses and metadata, and of names that every object inherits."""
    documents: list[dict[str, Any]] = []
    for number, text in enumerate(PAYLOADS):
        name, url = NAMES[number % len(NAMES)], ADDRESSES[number % len(ADDRESSES)]
        document = {"_id": f"{number}/{name}", "url": url, "title": f"zebra {text[:500]}", "lang": text[:50]}
        documents.append({**document, "text": f"The zebra crossed the plain. {text}", "plain": "yes"})
    odd = {"_id": "odd", "title": "zebra odd", "text": "An odd zebra"} | dict.fromkeys(INHERITED, "inherited")
    urls = ("javascript:alert(1)", "//x", "data:,x", "https://example.org/<b>&amp;")
    documents += [odd, *({**EXACT, "_id": url, "url": url, "path": "a/<b>.pdf", "page": 2} for url in urls)]
    source = write(tmp_path / "lines.jsonl", documents)
    return made(toy_model, source, tmp_path / "root", index="flat", lexical=True).path


def test_hostile_documents_are_shown_as_text_and_link_nowhere_but_to_the_web(
    open_page: Any, serve: Any, hostile_index: Path
) -> None:
    with serve(hostile_index) as http, open_page(http.base_url) as tab:
        page = tab.page
        page.set_viewport_size(NARROW)
        page.on("dialog", lambda dialog: (tab.wrong.append("a dialog opened"), dialog.dismiss()))
        texts = []
        for number in (1, 2):
            assert tab.titles("zebra", f"&page={number}")
            tab.explain()
            assert page.evaluate(HARMLESS) == SAFE
            texts.append(page.locator("#hits").inner_text())
        page.locator("#about", has_text=f"{len(PAYLOADS) + 5} documents").wait_for()
        assert not any(part in "".join(texts) for part in ("native code", "[object Object]"))
        assert all(name in "".join(texts) for name in ("plain yes", *ADDRESSES[-6:-1]))
        assert tab.titles("zebra", "&f.constructor=inherited") == ["zebra odd"]
        assert "inherited" in page.locator("#hits .fact").first.inner_text()
        assert tab.titles("quagga", "&retriever=lexical") == [EXACT["title"]] * 4
        links = page.locator("#hits a").evaluate_all("all => all.map(link => link.href)")
        own = [link for link in links if link.startswith(f"{tab.url}/?id=")]
        assert len(own) == 3 and set(links) - set(own) == {WEB.replace("<", "%3C").replace(">", "%3E")}
        assert page.locator("#hits .snippet").all_inner_texts() == [EXACT["text"]] * 4
        assert page.locator("#hits mark").all_inner_texts() == ["quagga"] * 4
        assert page.title() == "quagga · GLOW"
        # A document without an address of the web has a view of its own.
        page.locator("#hits a[href*='/?id=']").first.click()
        page.locator("#document h2", has_text=EXACT["title"]).wait_for()
        assert page.locator("#document .text").inner_text() == EXACT["text"]
        assert page.locator("#document .address").inner_text() == "a/<b>.pdf · page 2"
        assert page.evaluate(HARMLESS) == SAFE
        page.get_by_role("link", name="Back to the results").click()
        assert len(tab.titles()) == 4
        tab.expected.append("404")
        page.goto("/?id=nowhere")
        assert "nowhere" in tab.alert() and "search again" in tab.alert()
