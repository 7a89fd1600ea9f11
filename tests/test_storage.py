"""Rows of different lengths, and sorted strings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import FormatError
from glow.storage import ABSENT, ArrayWriter, SortedStrings, places_of


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


KEYS = [b"bee", b"bees", b"owl", "ünd".encode()]


def saved(folder: Path, keys: list[bytes] = KEYS) -> tuple[Path, Path]:
    text, ends = folder / "words.bin", folder / "offsets.npy"
    SortedStrings.pack(keys).save(text, ends)
    return text, ends


def test_what_was_saved_is_opened_and_found(tmp_path: Path) -> None:
    strings = SortedStrings.open(*saved(tmp_path), count=4)
    assert [strings.key(place) for place in range(len(strings))] == KEYS
    assert strings.value(3) == "ünd"
    assert [strings.find(key) for key in KEYS] == [0, 1, 2, 3]
    assert [strings.find(key) for key in (b"", b"be", b"beef", b"zz")] == [ABSENT] * 4
    empty = SortedStrings.open(*saved(tmp_path, []))
    assert len(empty) == 0 and empty.find(b"bee") == ABSENT


@given(st.sets(st.binary(min_size=1, max_size=6)), st.binary(max_size=6))
def test_a_place_is_how_many_come_before(keys: set[bytes], key: bytes) -> None:
    strings = SortedStrings.pack(sorted(keys))
    assert strings.place(key) == sum(other < key for other in keys)
    assert strings.place(key, after=True) == sum(other <= key for other in keys)
    assert (strings.find(key) != ABSENT) == (key in keys)


@pytest.mark.parametrize(
    "ends",
    [
        np.array([0, 3, 3, 10, 14]),  # an empty string
        np.array([0, 7, 3, 10, 14]),
        np.array([1, 3, 7, 10, 14]),
        np.array([0, 3, 7, 10, 99]),
        np.array([0.0, 3, 7, 10, 14]),
        np.array([[0, 14]]),
        np.array([], np.int64),
    ],
)
def test_ends_that_do_not_cut_the_text_are_refused(tmp_path: Path, ends: np.ndarray) -> None:
    text, path = saved(tmp_path)
    np.save(path, ends)
    with pytest.raises(FormatError, match=r"offsets\.npy.*rebuild the index"):
        SortedStrings.open(text, path)


def test_a_missing_or_other_file_is_named(tmp_path: Path) -> None:
    text, ends = saved(tmp_path)
    with pytest.raises(FormatError, match=r"expected int64 \[4\]"):
        SortedStrings.open(text, ends, count=3)
    ends.write_bytes(b"no array")
    with pytest.raises(FormatError, match=r"offsets\.npy"):
        SortedStrings.open(text, ends)
    text.unlink()
    with pytest.raises(FormatError, match=r"words\.bin"):
        SortedStrings.open(text, ends)
