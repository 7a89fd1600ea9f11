"""Sorted strings on disk are what they were, each is found, and files that do not fit are refused by name."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glow.errors import FormatError
from glow.storage import ABSENT, SortedStrings

KEYS = [b"bee", b"bees", b"owl", "ünd".encode()]


def saved(folder: Path) -> tuple[Path, Path]:
    text, ends = folder / "words.bin", folder / "offsets.npy"
    SortedStrings.pack(KEYS).save(text, ends)
    return text, ends


def test_what_was_saved_is_opened_and_found(tmp_path: Path) -> None:
    strings = SortedStrings.open(*saved(tmp_path), count=4)
    assert [strings.key(place) for place in range(len(strings))] == KEYS
    assert strings.value(3) == "ünd"
    assert [strings.find(key) for key in KEYS] == [0, 1, 2, 3]
    assert [strings.find(key) for key in (b"", b"be", b"beef", b"zz")] == [ABSENT] * 4


@given(st.sets(st.binary(min_size=1, max_size=6)), st.binary(max_size=6))
def test_a_place_is_how_many_come_before(keys: set[bytes], key: bytes) -> None:
    strings = SortedStrings.pack(sorted(keys))
    assert strings.place(key) == sum(other < key for other in keys)
    assert strings.place(key, after=True) == sum(other <= key for other in keys)
    assert (strings.find(key) != ABSENT) == (key in keys)


def test_no_strings_are_no_trouble(tmp_path: Path) -> None:
    SortedStrings.pack([]).save(tmp_path / "a", tmp_path / "b.npy")
    strings = SortedStrings.open(tmp_path / "a", tmp_path / "b.npy")
    assert len(strings) == 0 and strings.find(b"bee") == ABSENT


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
