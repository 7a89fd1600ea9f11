"""Rows of different lengths in one file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.storage import ArrayWriter, places_of


@pytest.mark.parametrize(
    ("kind", "width"), [(np.uint8, None), (np.float16, None), (np.int64, None), (np.uint8, 3)]
)
def test_what_is_added_is_the_file_that_numpy_writes(tmp_path: Path, kind: Any, width: int | None) -> None:
    shape = () if width is None else (width,)
    whole = np.arange(10 * (width or 1)).reshape(10, *shape).astype(kind)
    for count in (10, 0):
        writer = ArrayWriter(tmp_path / "a.npy", kind, width)
        for start in range(0, count, 4):
            writer.add(whole[start : start + 4])
        assert writer.length == count
        writer.end()
        np.save(tmp_path / "b.npy", whole[:count])
        assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


@pytest.mark.parametrize(
    "items", [np.zeros(3, np.uint8), np.zeros((3, 2), np.uint8), np.zeros((3, 3), np.int8)]
)
def test_items_of_another_type_or_width_are_refused(tmp_path: Path, items: Any) -> None:
    writer = ArrayWriter(tmp_path / "a.npy", np.uint8, 3)
    with pytest.raises(ValueError, match=r"expected uint8 \['m', 3\]"):
        writer.add(items)
    writer.close()


def test_a_file_that_was_not_ended_cannot_be_opened(tmp_path: Path) -> None:
    writer = ArrayWriter(tmp_path / "a.npy", np.uint8)
    writer.add(np.zeros(3, np.uint8))
    writer.close()
    with pytest.raises(ValueError, match="pickle"):
        np.load(tmp_path / "a.npy")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.data())
def test_places_are_those_of_each_row(lengths: list[int], data: st.DataObject) -> None:
    offsets = np.cumsum([0, *lengths])
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=12))
    expected = [place for row in rows for place in range(offsets[row], offsets[row + 1])]
    assert places_of(offsets, np.array(rows, np.int64)).tolist() == expected
