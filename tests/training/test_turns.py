"""Processes that start together: what all need is made once, whole, and one that dies holds nobody up."""

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from glow.errors import InputError
from glow.training.data import one_at_a_time


def together(work: Callable[[], None], processes: int = 2) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0


def note(file: Path, word: str) -> None:
    with file.open("a", encoding="utf-8") as log:
        log.write(word + "\n")


def test_one_process_at_a_time_is_let_in(tmp_path: Path) -> None:
    log, lock = tmp_path / "log", tmp_path / "new" / "made.lock"

    def work() -> None:
        with one_at_a_time(lock):
            note(log, "in")
            time.sleep(0.1)
            note(log, "out")

    together(work, 3)
    assert log.read_text().split() == ["in", "out"] * 3


def test_a_process_that_dies_gives_its_turn_back(tmp_path: Path) -> None:
    def die() -> None:
        with one_at_a_time(tmp_path / "lock"):
            os._exit(0)

    together(die, 1)
    with one_at_a_time(tmp_path / "lock"):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write"), one_at_a_time(tmp_path / "file" / "lock"):
        pass
