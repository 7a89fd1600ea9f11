"""`/docs`: every route with its fields and answers, forms that send, under the page's own policy."""

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.resources import files
from pathlib import Path
from typing import Any

import axe_playwright_python
import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Locator

from glow.search import RETRIEVERS
from glow_service.api.routes import ROUTES
from glow_service.app import create_app
from glow_service.settings import Settings

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
KEY = "the-key-of-this-test"


def opened(tab: Any, operation: str) -> Locator:
    """The part of one operation, unfolded."""
    tab.page.goto("/docs")
    part: Locator = tab.page.locator(f"#{operation}")
    part.locator("summary").click()
    return part


def sent(part: Locator) -> tuple[int, Any]:
    """Status and JSON of what the form of an operation brings."""
    part.get_by_role("button", name="Send").click()
    answer = part.locator("pre")
    answer.filter(has_text="{").wait_for()
    status, _, body = answer.inner_text().partition("\n\n")
    return int(status), json.loads(body)


def test_every_route_is_shown_once_in_its_group(tab: Any) -> None:
    tab.page.goto("/docs")
    tab.page.locator("details").first.wait_for()
    shown = tab.page.eval_on_selector_all(
        "details summary",
        "all => all.map(one => [...one.querySelectorAll('code')].map(code => code.innerText))",
    )
    paths = {(route.method, min(route.paths, key=len).replace(":path", "")) for route in ROUTES}
    assert {tuple(pair) for pair in shown} == paths and len(shown) == len(paths)
    groups = tab.page.locator("#groups h2").all_inner_texts()
    assert groups[0] == "search" and "admin" in groups


def test_fields_have_types_and_meanings(tab: Any) -> None:
    table = opened(tab, "post_search").locator("table")
    row = table.locator("tr", has=tab.page.locator("th", has_text="retriever"))
    assert row.locator("td").all_inner_texts()[0] == '"dense" or "lexical" or "learned-sparse" or "hybrid"'
    filter_row = table.locator("tr", has=tab.page.locator("th", has_text="top_k"))
    assert "max_top_k" in filter_row.inner_text()


def test_forms_send_and_show_what_comes(tab: Any) -> None:
    tab.expected.append("422")
    part = opened(tab, "post_search")
    status, found = sent(part)
    assert status == 200 and found["hits"]
    part.get_by_label("Body").fill('{"query": 1}')
    part.get_by_role("button", name="Send").click()
    part.locator("pre", has_text="422").wait_for()
    document = opened(tab, "get_document")
    document.get_by_label("id").fill("toy/0")
    status, found = sent(document)
    assert (status, found["id"]) == (200, "toy/0")


def test_a_key_is_sent_once_it_is_given(
    open_page: Callable[..., Any],
    toy_index: Path,
    serve_app: Callable[[FastAPI], AbstractContextManager[httpx.Client]],
) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    app = create_app(Settings(index_root=toy_index, api_keys=f"tester:{digest}"), on_failure=lambda: None)
    with serve_app(app) as client:
        with open_page(str(client.base_url)) as tab:
            tab.expected += ["401"]
            part = opened(tab, "get_info")
            assert sent(part)[0] == 401
            tab.page.get_by_label("Key, where").fill(KEY)
            tab.page.get_by_role("button", name="Use key").click()
            tab.page.get_by_text("The key is used from now on.").wait_for()
            part.locator("summary").click()
            assert sent(part)[0] == 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong(full_tab: Any, scheme: str) -> None:
    full_tab.page.emulate_media(color_scheme=scheme)
    sent(opened(full_tab, "post_search"))
    full_tab.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = full_tab.page.evaluate("axe.run().then(found => found.violations)")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


def test_the_page_offers_every_retriever() -> None:
    page = files("glow_service") / "page"
    offered = re.findall(r'name="retriever" value="([\w-]+)"', (page / "index.html").read_text())
    assert sorted(offered) == sorted(RETRIEVERS)
    names = re.search(r"RETRIEVER_NAMES = {(.*)}", (page / "results.js").read_text())
    assert names and all(re.search(rf'"?{name}"?: ', names[1]) for name in offered)
