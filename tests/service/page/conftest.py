"""A real, headless Chromium (`GLOW_CHROMIUM`, default /usr/bin/chromium) in front of real services."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.made_index import made, write

CHROMIUM = Path(os.environ.get("GLOW_CHROMIUM", "/usr/bin/chromium"))
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--no-first-run"]
WAIT_MS = 60_000
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 320, "height": 844}


@dataclass
class SearchPage:
    """The page as somebody uses it, at a service's address."""

    page: Page
    url: str
    expected: list[str] = field(default_factory=list)  # parts of errors that belong to the test
    wrong: list[str] = field(default_factory=list)  # other errors, and requests to other servers
    sent: list[dict[str, Any]] = field(default_factory=list)  # bodies of the searches

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self._note(f"script error: {error}"))
        self.page.on("console", lambda message: message.type == "error" and self._note(message.text))
        self.page.on("request", self._check)

    def _note(self, error: str) -> None:
        if not any(part in error for part in self.expected):
            self.wrong.append(error)

    def _check(self, request: Any) -> None:
        if not request.url.startswith(self.url) or request.url.endswith("/feedback"):
            self._note(request.url)  # clicks are nobody's business unless the service wants to know
        elif request.url.endswith("/search"):
            self.sent.append(json.loads(request.post_data))

    def open(self, query: str = "", rest: str = "") -> None:
        self.page.goto(f"/?q={quote(query)}{rest}" if query else "/")

    def titles(self, query: str = "", rest: str = "") -> list[str]:
        """Opens the page if there is a query; titles of the results, once no search is under way."""
        if query:
            self.open(query, rest)
        self.page.locator("body:not([aria-busy]) #hits > li").first.wait_for()
        return self.page.locator("#hits h3").all_inner_texts()

    def search(self, query: str) -> None:
        self.page.get_by_label("Search the documents").fill(query)
        self.page.keyboard.press("Enter")

    def shown(self, query: str) -> list[str]:
        """Titles of the results of a query, once they are there and its address is."""
        self.page.wait_for_url(re.compile(rf"/\?q={re.escape(quote(query))}(&prefix=on)?$"))
        last = re.compile(rf"^{re.escape(query.split()[-1])}{'' if 'prefix=on' in self.page.url else '$'}")
        self.page.locator("#terms .word", has_text=last).first.wait_for(state="attached")
        return self.titles()

    def explain(self, place: int = 0) -> Any:
        """Opens the explanation of a result, and the tables that are folded in it; returns it."""
        self.page.get_by_role("button", name="Why this result").nth(place).click()
        panel = self.page.locator(".explanation").nth(place)
        panel.get_by_text("Scores and words").click()
        return panel

    def change(self, pattern: str, work: Callable[[Any], Any]) -> None:
        """Has the JSON of such responses changed on their way."""

        def fulfill(route: Any) -> None:
            body = route.fetch().json()
            work(body)
            route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

        self.page.route(pattern, fulfill)

    def stand_still(self) -> None:
        self.page.wait_for_function("document.getAnimations().every(each => each.playState !== 'running')")

    def alert(self) -> str:
        self.page.locator("#problem").wait_for()
        return self.page.locator("#problem").inner_text()

    def settle(self) -> None:
        """Waits until the page has seen what was sent to it so far."""
        self.page.evaluate("fetch('/healthz').then(() => null)")

    def focus(self) -> str:
        """The title of the result that has the focus, otherwise the id of what has it."""
        script = "e => e.closest('#hits > li')?.querySelector('h3').innerText ?? (e.id || e.parentElement.id)"
        return self.page.evaluate(f"({script})(document.activeElement)")

    def findings(self) -> list[str]:
        """What axe finds wrong, minor things included: wide and light, narrow and dark."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = []
        for scheme, size in (("dark", NARROW), ("light", WIDE)):
            self.page.set_viewport_size(size)
            self.page.emulate_media(color_scheme=scheme)
            self.stand_still()  # what fades in has no contrast yet
            if self.page.evaluate("document.documentElement.scrollWidth") > size["width"]:
                found.append("too wide")
            script = "axe.run({resultTypes: ['violations']}).then(found => found.violations)"
            for rule in self.page.evaluate(script):
                found += [f"{rule['impact']} {rule['id']}: {node['html']}" for node in rule["nodes"]]
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for a file's tests: beyond it, playwright's event loop would be in the way of others."""
    if not CHROMIUM.is_file():
        pytest.skip(f"no Chromium at {CHROMIUM}; set GLOW_CHROMIUM to one")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser) -> Callable[..., AbstractContextManager[SearchPage]]:
    """Opens a browser window on a service; leaving it fails where a script erred or another server was asked."""

    @contextmanager
    def window(url: Any) -> Iterator[SearchPage]:
        context = browser.new_context(viewport=WIDE, base_url=str(url))
        context.set_default_timeout(WAIT_MS)
        page = SearchPage(context.new_page(), str(url))
        try:
            yield page
        finally:
            context.close()
        assert page.wrong == []

    return window


@pytest.fixture(scope="session")
def full_index(tmp_path_factory: Any, toy_model: Path, toy_reranker: Path, toy_corpus: Path) -> Path:
    """An index root with everything that the page can use: three languages, years, a yes or no, words, reasons, a re-ranker.

    All of its 50 documents match `water`.
    """
    folder = tmp_path_factory.mktemp("full")
    documents = [json.loads(line) for line in toy_corpus.read_text(encoding="utf-8").splitlines()]
    for place, document in enumerate(documents):
        document |= {"lang": ("en", "de", "fr")[place % 3], "short": place % 2 == 0}
        document["text"] += " See also water."
        document["day"] = f"2024-{place % 12 + 1:02d}-15T12:00:00Z"
    source = write(folder / "corpus.jsonl", documents)
    return made(toy_model, source, folder / "root", lexical=True, rerank=toy_reranker).path


@pytest.fixture(scope="session")
def full_url(full_index: Path, serve_app: Any, make_app: Any) -> Iterator[str]:
    with serve_app(make_app(full_index)) as client:
        yield str(client.base_url)


@pytest.fixture
def tab(open_page: Callable[..., Any], full_url: str) -> Iterator[SearchPage]:
    with open_page(full_url) as page:
        yield page
