"""What the page says where a search fails: refusals, services that are gone, busy or not ready."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glow_service.app import create_app
from glow_service.settings import Settings


def test_a_refusal_says_what_to_do(tab: Any) -> None:
    tab.expected.append("422")
    tab.open()
    tab.search("x" * 2_001)
    alert = tab.alert()
    assert alert.get_attribute("role") == "alert"
    for part in ("too long", "at most 2000", "Change the query"):
        assert part in alert.inner_text()
    assert not tab.page.get_by_role("button", name="Try again").is_visible()
    tab.search("bees")
    assert tab.titles()
    assert not alert.is_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_connection_that_is_gone_is_reported_and_can_be_tried_again(
    open_page: Callable[..., Any], server: Any, width: int
) -> None:
    with open_page(server.url, width) as tab:
        tab.expected.append("ERR_INTERNET_DISCONNECTED")
        tab.open()
        tab.page.context.set_offline(True)
        tab.search("bees")
        assert "cannot be reached" in tab.alert().inner_text()
        tab.page.context.set_offline(False)
        tab.page.get_by_role("button", name="Try again").click()
        assert tab.titles()
        assert not tab.page.locator("#problem").is_visible()


def test_a_service_that_died_between_two_searches_is_reported(
    open_page: Callable[..., Any], run_server: Callable[..., Any], toy_index: Path
) -> None:
    with run_server("--index-root", toy_index) as server, open_page(server.url) as tab:
        tab.expected.append("ERR_CONNECTION_REFUSED")
        tab.open("bees")
        tab.titles()
        server.stop()
        tab.search("honey")
        text = tab.alert().inner_text()
        assert "cannot be reached" in text
        assert "Check that it runs" in text
        assert not tab.page.locator("#found").is_visible()


def test_a_service_that_is_not_ready_is_asked_again_by_itself(
    open_page: Callable[..., Any],
    make_app: Callable[..., Any],
    serve_app: Callable[..., Any],
    tmp_path: Path,
) -> None:
    with serve_app(make_app(tmp_path), wait=False) as http, open_page(str(http.base_url)) as tab:
        tab.expected.append("503")
        tab.open("bees")
        assert "Not ready yet" in tab.alert().inner_text()
        with tab.page.expect_response("**/info") as asked:
            tab.page.locator("#countdown", has_text=re.compile(r"Trying again in \d+ s")).wait_for()
        assert asked.value.status == 503


def test_too_many_searches_count_down_and_then_go_on_by_themselves(
    open_page: Callable[..., Any], serve_app: Callable[..., Any], toy_index: Path
) -> None:
    settings = Settings(index_root=toy_index, rate_limit=0.5, rate_burst=2, default_timeout_ms=30_000)
    with serve_app(create_app(settings, on_failure=lambda: None)) as http:
        with open_page(str(http.base_url)) as tab:
            tab.expected.append("429")
            tab.open("bees")  # two requests: /info and the search
            tab.titles()
            tab.search("honey")
            alert = tab.alert()
            assert "Too many requests" in alert.inner_text()
            alert.get_by_text(re.compile(r"Trying again in \d+ s")).wait_for()
            assert tab.page.get_by_role("button", name="Try again").is_visible()
            tab.page.locator("#terms .word", has_text="honey").wait_for(state="attached")
            assert not alert.is_visible()


def test_a_long_wait_is_told_and_not_counted_down(
    open_page: Callable[..., Any], serve_app: Callable[..., Any], toy_index: Path
) -> None:
    settings = Settings(index_root=toy_index, rate_limit=0.002, rate_burst=2, default_timeout_ms=30_000)
    with serve_app(create_app(settings, on_failure=lambda: None)) as http:
        with open_page(str(http.base_url)) as tab:
            tab.expected.append("429")
            tab.open("bees")
            tab.titles()
            tab.search("honey")
            assert re.search(r"Wait \d minutes", tab.alert().inner_text())
            assert not tab.page.locator("#countdown").is_visible()
