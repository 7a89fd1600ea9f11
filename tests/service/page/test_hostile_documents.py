"""Documents that strangers wrote, on the page in Chromium: shown as text, and nothing more."""

from pathlib import Path
from typing import Any

import pytest

from tests.made_index import made, write
from tests.service.page.conftest import NARROW

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
