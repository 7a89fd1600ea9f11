"""A real, headless Chromium (`GLOW_CHROMIUM`, default /usr/bin/chromium) in front of real services."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.made_index import made, write

ROOT = Path(__file__).parent.parent.parent.parent
CHROMIUM = Path(os.environ.get("GLOW_CHROMIUM", "/usr/bin/chromium"))
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--no-first-run"]
WAIT_MS = 60_000
LANGUAGES = ("en", "de", "fr")


@dataclass
class SearchPage:
    """The page as somebody uses it, at a service's address."""

    page: Page
    url: str
    # Parts of console errors that belong to the test, such as a status that it provokes.
    expected: list[str] = field(default_factory=list)
    # Script errors, other console errors, and requests to other servers.
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.wrong.append(f"script error: {error}"))
        self.page.on("console", self._note)
        self.page.on("request", lambda asked: self._check(asked.url))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(part in message.text for part in self.expected):
            self.wrong.append(message.text)

    def _check(self, url: str) -> None:
        if not url.startswith(self.url):
            self.wrong.append(url)

    def open(self, query: str = "", rest: str = "") -> None:
        """Opens the page, with results where there is a query."""
        self.page.goto(f"/?q={quote(query)}{rest}" if query else "/")

    def found(self, query: str, rest: str = "", unfold: str = "") -> list[str]:
        """Opens the page with results and what is folded; returns the results' titles."""
        self.open(query, rest)
        titles = self.titles()
        if unfold:
            self.unfold(unfold)
        return titles

    def change(self, pattern: str, work: Callable[[Any], Any]) -> None:
        """Has the JSON of such answers changed on their way."""

        def answer(route: Any) -> None:
            body = route.fetch().json()
            work(body)
            route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

        self.page.route(pattern, answer)

    def is_too_wide(self) -> bool:
        """Whether it scrolls sideways."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth")
        return width > self.page.viewport_size["width"]

    def search(self, query: str) -> None:
        """Types a query and sends it."""
        self.page.get_by_label("Search the documents").fill(query)
        self.page.keyboard.press("Enter")

    def titles(self) -> list[str]:
        """Titles of the results, once there are some and no search is under way."""
        self.page.locator("body:not([aria-busy]) #hits > li").first.wait_for()
        return self.page.locator("#hits h3").all_inner_texts()

    def unfold(self, selector: str) -> None:
        """Opens what is folded, if it is."""
        if not self.page.locator(selector).evaluate("one => one.open"):
            self.page.locator(f"{selector} summary").click()

    def stand_still(self) -> None:
        """Waits until nothing moves or fades any more."""
        self.page.wait_for_function("document.getAnimations().every(each => each.playState !== 'running')")

    def alert(self) -> Any:
        """What the page says where something failed, once it says it."""
        alert = self.page.locator("#problem")
        alert.wait_for()
        return alert

    def step(self) -> str:
        """Title of the result that has the focus; "" where none has."""
        script = "document.activeElement.closest('#hits > li')?.querySelector('h3').innerText ?? ''"
        return self.page.evaluate(script)

    def shares(self, selector: str) -> list[float]:
        """How much of the whole the page draws of each element."""
        script = "all => all.map(one => Number(one.style.getPropertyValue('--share')))"
        return self.page.eval_on_selector_all(selector, script)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests; each has a context of its own."""
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
    def window(url: str, width: int = 1280, **options: Any) -> Iterator[SearchPage]:
        size = {"width": width, "height": 844 if width < 600 else 900}
        context = browser.new_context(viewport=size, base_url=url, **options)
        context.set_default_timeout(WAIT_MS)
        page = SearchPage(context.new_page(), url)
        try:
            yield page
        finally:
            context.close()
        assert page.wrong == []

    return window


@pytest.fixture
def tab(open_page: Callable[..., Any], server: Any) -> Iterator[SearchPage]:
    """A window on the service over the toy index."""
    with open_page(server.url) as page:
        yield page


@pytest.fixture(scope="session")
def full_index(tmp_path_factory: Any, toy_model: Path, toy_reranker: Path, toy_corpus: Path) -> Path:
    """An index root with everything that the page can use: three languages, years, a yes or no, words, reasons, a re-ranker."""
    folder = tmp_path_factory.mktemp("full")
    documents = [json.loads(line) for line in toy_corpus.read_text(encoding="utf-8").splitlines()]
    for place, document in enumerate(documents):
        day = f"2024-{place % 12 + 1:02d}-15T12:00:00Z"
        document |= {"lang": LANGUAGES[place % 3], "short": place % 2 == 0, "day": day}
    source = write(folder / "corpus.jsonl", documents)
    return made(toy_model, source, folder / "root", lexical=True, rerank=toy_reranker).path


@pytest.fixture(scope="session")
def full_url(full_index: Path, start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service over `full_index`."""
    with start_server(tmp_path_factory.mktemp("service"), "--index-root", str(full_index)) as running:
        yield running.url


@pytest.fixture(params=[1280, 390])
def full_tab(open_page: Any, full_url: str, request: pytest.FixtureRequest) -> Iterator[SearchPage]:
    """A window, wide or as narrow as a phone, on a service that can do everything."""
    with open_page(full_url, request.param) as page:
        yield page
