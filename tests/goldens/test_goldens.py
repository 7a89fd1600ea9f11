"""Indexes hold and answer what they did when the goldens were recorded (`python -m tests.goldens.record`)."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.goldens.compare import Tolerance, differences, exact, load, nearly, portable
from tests.goldens.corpora import CORPORA
from tests.goldens.whole import whole

FOLDER = Path(__file__).parent
SHOWN = 40

Json = dict[str, Any]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Json:
    return whole(tmp_path_factory.mktemp("goldens"))


def check(wanted: Json, found: Json, tolerance: Tolerance, name: str) -> None:
    lines = list(differences(wanted, found, tolerance, name))
    assert not lines, "\n".join([f"{len(lines)} differences", *islice(lines, SHOWN)])


@pytest.mark.parametrize("name", CORPORA)
def test_an_index_holds_and_answers_what_it_did(name: str, found: Json) -> None:
    check(load(FOLDER / f"{name}.json"), portable(found[name]), nearly, name)


def test_a_difference_is_named_and_nearly_equal_hits_may_change_places() -> None:
    place = "plain/built/answers/dense home/hits"
    wanted = {"a": 0.9, "b": 0.50001, "c": 0.5, "d": 0.4}
    assert not list(differences(wanted, {"a": 0.90002, "c": 0.5, "b": 0.5, "e": 0.40001}, nearly, place))
    for found, change in (
        ({"a": 0.9, "c": 0.5, "b": 0.3, "d": 0.4}, "at rank 3, c with 0.5 became b with 0.3"),
        ({"a": 0.9, "b": 0.5, "d": 0.5, "c": 0.4}, "at rank 3, c became d, and their scores differ"),
    ):
        assert f"{place}: {change}" in differences(wanted, found, nearly, place)
    assert list(differences({"x": 1, "y": 2}, {"y": 2, "x": 1}, exact, "")) == [": members in another order"]
    assert list(differences({"x": [1]}, {"y": 1.0}, exact, "p")) == ["p/x: is gone", "p/y: is new"]
