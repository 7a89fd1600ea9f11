"""Log lines for programs and for people."""

import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from glow_service.telemetry import LogForm, configure_logging


class Terminal(io.StringIO):
    """Standard error as a person has it."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("form", "stream", "is_text"),
    [
        ("auto", Terminal(), True),
        ("auto", io.StringIO(), False),
        ("json", Terminal(), False),
        ("text", io.StringIO(), True),
    ],
)
def test_people_get_text_and_programs_json(
    monkeypatch: pytest.MonkeyPatch, form: LogForm, stream: io.StringIO, is_text: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging("info", form)
    logging.getLogger("glow_service.x").info(
        "ready", extra={"fields": {"documents": 3, "index": "a\x1b[31m"}}
    )
    logging.getLogger("glow_service.x").error("it failed")
    first, second = stream.getvalue().splitlines()
    if is_text:
        assert re.fullmatch(r"\d\d:\d\d:\d\d  ready  documents=3  index=a\\x1b\[31m", first)
        assert second.endswith("  error: it failed")
    else:
        assert json.loads(first)["documents"] == 3
        assert json.loads(second)["level"] == "error"


def test_a_start_without_an_index_is_one_line(tmp_path: Path, run_to_exit: Callable[..., Any]) -> None:
    done = run_to_exit("--index-root", tmp_path, "--workers", 2)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["code"] == "artifact_not_found"


def test_a_service_says_where_it_listens(
    toy_index: Path, run_server: Callable[..., AbstractContextManager[Any]]
) -> None:
    with run_server("--index-root", toy_index) as server:
        lines = [json.loads(line) for line in server.logged().splitlines()]
        assert [line["url"] for line in lines if line["message"] == "listening"] == [server.url]
