"""Documents that strangers wrote, through a whole build and onto the page in Chromium: shown as text, and nothing more."""

from pathlib import Path
from typing import Any

import pytest

from tests.made_index import made, write
from tests.service.page.conftest import NARROW

HIT = "window.hostile=1"
HERD = "A zebra crossed the plain while its herd drank from the river, and the herd waited for the zebra. "
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
    "<link rel=stylesheet href=http://hostile.example/x.css>",
    "<meta http-equiv=refresh content='0;url=http://hostile.example/'>",
    "<base href='http://hostile.example/'>",
    f"<form action='javascript:{HIT}'><button>zebra</button></form>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={HIT}>",
    f"${{{HIT}}} {{{{constructor.constructor('{HIT}')()}}}}",
    "\u202ezebra\u202c \u0000 \ufeff \u2028 \u2029",
    "zebra" * 4_000,
    "Z̸" * 3_000,
)
ADDRESSES = (
    f"javascript:{HIT}",
    f" javascript:{HIT}",
    f"JaVaScRiPt:{HIT}",
    f"java\tscript:{HIT}",
    f"data:text/html,<script>{HIT}</script>",
    f"vbscript:{HIT}",
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
  elements: document.querySelectorAll("#hits :is(script, iframe, img, object, embed, form, svg, math, style, link, meta, base)").length,
  handlers: [...document.querySelectorAll("#hits *")].flatMap((one) => one.getAttributeNames()).filter((name) => name.startsWith("on")),
  links: [...document.querySelectorAll("#hits a")].map((one) => one.protocol).filter((scheme) => !["http:", "https:"].includes(scheme)),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  visible: getComputedStyle(document.body).display !== "none",
})
"""
SAFE = {"ran": None, "elements": 0, "handlers": [], "links": [], "wide": 0, "visible": True}


def page_of(payload: str, is_html: bool) -> str:
    """A file of a folder of pages."""
    if is_html:
        return f"<!doctype html><title>zebra {payload}</title><body><h1>zebra {payload}</h1><p>{HERD * 3}{payload}</p><p {payload}>{HERD}</p>"
    return f"---\ntitle: zebra {payload[:200]}\n---\n# zebra {payload}\n\n{HERD}{payload}\n\n[zebra](javascript:{HIT}) ![x](javascript:{HIT})\n\n{payload}\n"


@pytest.fixture
def pages(tmp_path: Path, toy_model: Path) -> Path:
    """An index root of a folder of hostile Markdown and HTML."""
    source = tmp_path / "pages"
    source.mkdir()
    for number, payload in enumerate(PAYLOADS):
        name = NAMES[number % len(NAMES)]
        (source / f"{number} {name}.md").write_text(page_of(payload, is_html=False), encoding="utf-8")
        (source / f"{number} {name}.html").write_text(page_of(payload, is_html=True), encoding="utf-8")
    return made(toy_model, source, tmp_path / "root", lexical=True).path


@pytest.fixture
def lines(tmp_path: Path, toy_model: Path) -> Path:
    """An index root of lines of JSON: hostile addresses, fields, metadata, and names that every object inherits."""
    texts = [payload[:500] for payload in PAYLOADS]
    documents = [
        {"_id": f"{number}/{text}"[:200].replace("\0", ""), "url": ADDRESSES[number % len(ADDRESSES)], "title": f"zebra {text}", "text": f"zebra {text}", "lang": text[:50], "plain": "yes"}
        for number, text in enumerate(texts)
    ]  # fmt: skip
    documents.append(
        {"_id": "odd", "title": "zebra odd", "text": "An odd zebra"} | dict.fromkeys(INHERITED, "inherited")
    )
    documents += [{**EXACT, "_id": url, "url": url} for url in ("javascript:alert(1)", "//x", "data:,x", WEB)]
    source = write(tmp_path / "lines.jsonl", documents)
    return made(toy_model, source, tmp_path / "root", index="flat", lexical=True).path


def visited(tab: Any, pages: int) -> list[dict[str, Any]]:
    """What became of each page of results, each with the reasons of a hit unfolded."""
    found = []
    tab.page.on("dialog", lambda dialog: (tab.wrong.append("a dialog opened"), dialog.dismiss()))
    for number in range(1, pages + 1):
        assert tab.titles("zebra", f"&page={number}")
        tab.page.locator("#hits .why").first.click()
        tab.page.locator("#hits .explanation table").first.wait_for()
        found.append(tab.page.evaluate(HARMLESS))
    return found


def test_hostile_pages_are_shown_as_text_and_no_wider_than_a_phone(
    open_page: Any, serve: Any, pages: Path
) -> None:
    with serve(pages) as http, open_page(http.base_url) as tab:
        tab.page.set_viewport_size(NARROW)
        assert visited(tab, 4) == [SAFE] * 4
        tab.page.locator("#about", has_text=f"{2 * len(PAYLOADS)} documents").wait_for()


def test_hostile_lines_are_shown_as_text_and_link_nowhere_but_to_the_web(
    open_page: Any, serve: Any, lines: Path
) -> None:
    with serve(lines) as http, open_page(http.base_url) as tab:
        assert visited(tab, 2) == [SAFE] * 2
        text = tab.page.locator("#hits").inner_text()
        assert "native code" not in text and "[object Object]" not in text
        assert tab.page.locator("#hits .fact", has_text="plain yes").count() > 0, "others' facts stay"
        assert tab.titles("zebra", "&f.constructor=inherited") == ["zebra odd"]
        assert "inherited" in tab.page.locator("#hits .fact").first.inner_text()
        assert tab.titles("quagga", "&retriever=lexical") == [EXACT["title"]] * 4
        assert tab.page.locator("#hits a").all_inner_texts() == [EXACT["title"]]
        assert tab.page.locator("#hits .snippet").all_inner_texts() == [EXACT["text"]] * 4
        assert tab.page.locator("#hits mark").all_inner_texts() == ["quagga"] * 4
        assert tab.page.title() == "quagga · GLOW"
