"""Stages show a bar on a terminal and plain lines elsewhere, and keep their times."""

import io
import time

import pytest

import glow.commands.bars as progress
from glow_index_builder.progress import Stages


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        """Always."""
        return True


def test_a_stage_keeps_its_time() -> None:
    stages = Stages(io.StringIO())
    with stages.stage("read"):
        time.sleep(0.02)
    with stages.stage("encode"):
        pass
    assert list(stages.seconds) == ["read", "encode"]
    assert 0.02 <= stages.seconds["read"] < 2


def test_plain_lines_tell_what_was_done() -> None:
    out = io.StringIO()
    with Stages(out).stage("encode", 3000, "documents") as advance:
        advance(1000)
        advance(2000)
    assert out.getvalue().startswith("encode: 3,000 documents in 0.")
    assert out.getvalue().count("\n") == 1


def test_long_stages_speak_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.0)
    out = io.StringIO()
    with Stages(out).stage("read", None, "bytes") as advance:
        advance(500)
    assert out.getvalue().splitlines()[0] == "read: 500 of ? bytes"


def test_a_terminal_sees_a_bar_up_to_the_end() -> None:
    out = Terminal()
    with Stages(out).stage("encode", 10, "documents") as advance:
        advance(10)
    assert "encode" in out.getvalue() and "100%" in out.getvalue()
    with Stages(out).stage("index"):
        pass
    assert "index" in out.getvalue()


def test_a_stage_that_fails_passes_its_error_on() -> None:
    for out in (io.StringIO(), Terminal()):
        with pytest.raises(ValueError, match="mine"), Stages(out).stage("read"):
            raise ValueError("mine")
