"""A service that needs a key: the page asks for it, keeps it in its tab, and sends it nowhere else."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Page

from glow_service.app import create_app
from glow_service.settings import Settings

KEY = "the-key-of-this-test"


@pytest.fixture
def guarded(
    open_page: Callable[..., Any],
    toy_index: Path,
    serve_app: Callable[[FastAPI], AbstractContextManager[httpx.Client]],
) -> Iterator[Any]:
    """A window on a service that needs a key."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    app = create_app(Settings(index_root=toy_index, api_keys=f"tester:{digest}"), on_failure=lambda: None)
    with serve_app(app) as client:
        with open_page(str(client.base_url)) as tab:
            tab.expected += ["401", "403"]
            yield tab


def enter_key(page: Page, key: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.keyboard.press("Enter")


def test_a_service_that_needs_a_key_asks_for_it_and_then_searches(guarded: Any) -> None:
    guarded.page.goto("/?q=how do bees find home")
    alert = guarded.page.locator("#problem")
    alert.wait_for()
    assert "needs a key" in alert.inner_text()
    assert not guarded.page.get_by_role("button", name="Try again").is_visible()
    assert guarded.page.evaluate("document.activeElement.id") == "key"
    with guarded.page.expect_request("**/search") as asked:
        enter_key(guarded.page, f" {KEY} ")
    assert guarded.titles()[0] == "Bees"
    assert asked.value.headers["authorization"] == f"Bearer {KEY}"
    assert not alert.is_visible()
    guarded.page.locator("#about", has_text="50 documents").wait_for()
    guarded.search("honey")
    guarded.page.locator("#terms .word", has_text="honey").wait_for(state="attached")


def test_the_key_is_asked_for_before_the_first_search_and_can_hold_a_slash(guarded: Any) -> None:
    guarded.page.goto("/")
    guarded.page.locator("#problem").wait_for()
    assert guarded.page.evaluate("document.activeElement.id") == "key"
    guarded.page.keyboard.type("a/b")
    assert guarded.page.get_by_label("Key", exact=True).input_value() == "a/b"


def test_the_key_stays_in_its_tab_and_nowhere_else(guarded: Any) -> None:
    guarded.page.goto("/?q=bees")
    enter_key(guarded.page, KEY)
    guarded.titles()
    guarded.page.reload()
    guarded.titles()
    kept = "[Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]"
    session, local, cookie, address = guarded.page.evaluate(kept)
    assert (session, local, cookie) == ([KEY], [], "")
    assert KEY not in address
    assert KEY not in guarded.page.content()
    assert guarded.page.get_by_label("Key", exact=True).input_value() == ""
    other = guarded.page.context.new_page()
    other.goto("/?q=bees")
    other.locator("#problem").wait_for()
    assert "needs a key" in other.locator("#problem").inner_text()


def test_a_wrong_key_is_refused_forgotten_and_can_be_replaced(guarded: Any) -> None:
    guarded.page.goto("/?q=bees")
    enter_key(guarded.page, "nonsense")
    alert = guarded.page.locator("#problem")
    alert.get_by_text("The key was refused").wait_for()
    assert guarded.page.evaluate("sessionStorage.length") == 0
    assert guarded.page.evaluate("document.activeElement.id") == "key"
    enter_key(guarded.page, KEY)
    guarded.titles()
    assert not alert.is_visible()


@pytest.mark.parametrize("key", ["ключ", "two words", "тhe-key"])
def test_what_cannot_be_a_key_is_not_sent(guarded: Any, key: str) -> None:
    guarded.page.goto("/?q=bees")
    guarded.page.locator("#problem").wait_for()
    asked: list[str] = []
    guarded.page.on("request", lambda request: asked.append(request.url))
    enter_key(guarded.page, key)
    guarded.page.locator("#problem").get_by_text("That is no key").wait_for()
    assert asked == []
    enter_key(guarded.page, KEY)
    guarded.titles()
