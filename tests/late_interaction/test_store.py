"""The store of token vectors: its files, damage and mismatch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.errors import FormatError
from glow.index.late_interaction import LATE_FILES, CodedTokens, LateHeader, LateTokens, LateWriter

HEADER = LateHeader(model="a" * 64, size=24, budget=12, rows=0, tokens=0)


def coded(lengths: list[int], seed: int = 0, size: int = 24) -> CodedTokens:
    """Rows of so many tokens."""
    random, count = np.random.default_rng(seed), sum(lengths)
    codes = random.integers(0, 256, (count, size // 8), dtype=np.uint8)
    return CodedTokens(np.array(lengths, np.int64), codes, random.integers(0, 999, count).astype(np.uint16))


def write(folder: Path, *blocks: CodedTokens, header: LateHeader = HEADER) -> LateHeader:
    """Writes a store of some blocks."""
    with LateWriter(folder, header) as writer:
        for block in blocks:
            writer.add(block)
        return writer.close()


LENGTHS = [1, 12, 3, 7, 1, 5]
ROWS = coded(LENGTHS)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path / "late", ROWS)
    return tmp_path / "late"


def test_a_store_gives_back_every_row(store: Path) -> None:
    late = LateTokens.open(store, 6)
    assert len(late) == 6 and late.header == HEADER.model_copy(update={"rows": 6, "tokens": 29})
    assert {path.name for path in store.iterdir()} == set(LATE_FILES)
    ends = np.cumsum(LENGTHS)
    bounds = enumerate(zip(LENGTHS, ends, strict=True))
    pieces = {row: slice(end - length, end) for row, (length, end) in bounds}
    for rows in ([3, 1, 0, 3], [5], list(range(6)), []):
        wanted = np.array(rows, np.int64)
        codes, starts = late.read(wanted)
        expected = [ROWS.codes[:0], *(ROWS.codes[pieces[row]] for row in rows)]
        assert codes.tobytes() == np.concatenate(expected).tobytes() and codes.shape[1] == 3
        assert starts.tolist() == np.cumsum([0, *(LENGTHS[row] for row in rows)])[:-1].tolist()
        assert late.lengths(wanted).tolist() == [LENGTHS[row] for row in rows]
    expected = [ROWS.places[pieces[row]].tolist() for row in range(6)]
    assert [late.places(row).tolist() for row in range(6)] == expected
    files = {path.name: np.load(path) for path in store.glob("*.npy")}
    assert files["starts.npy"].dtype == np.int64 and files["starts.npy"].tolist() == [0, *ends.tolist()]
    assert files["codes.npy"].dtype == np.uint8 and files["codes.npy"].shape == (29, 3)
    assert files["places.npy"].dtype == np.uint16


def test_the_files_are_the_same_however_rows_come(store: Path, tmp_path: Path) -> None:
    late = LateTokens.open(store)
    blocks = [late.coded(np.array(rows, np.int64)) for rows in ([0], [1, 2, 3], [], [4, 5])]
    write(tmp_path / "again", *blocks)
    for name in LATE_FILES:
        assert (tmp_path / "again" / name).read_bytes() == (store / name).read_bytes()


def test_a_store_of_no_row_can_be_opened(tmp_path: Path) -> None:
    write(tmp_path / "late")
    late = LateTokens.open(tmp_path / "late", 0)
    assert len(late) == 0 and late.read(np.empty(0, np.int64))[0].shape == (0, 3)


@pytest.mark.parametrize("lengths", [[2, 0], [13], [12, 13, 1]])
def test_rows_of_too_few_or_many_tokens_are_refused(tmp_path: Path, lengths: list[int]) -> None:
    said = f"rows of {min(lengths)} to {max(lengths)} tokens, expected 1 to 12"
    with pytest.raises(ValueError, match=said):
        write(tmp_path / "late", coded(lengths))


def test_tokens_of_another_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found uint8 \[3, 4\]"):
        write(tmp_path / "late", coded([3], size=32))


@pytest.mark.parametrize("name", LATE_FILES)
def test_a_file_that_is_missing_or_cut_off_is_named(store: Path, name: str) -> None:
    whole = (store / name).read_bytes()
    for left in (None, whole[:-2], whole[: len(whole) // 2], b""):
        (store / name).unlink(missing_ok=True)
        if left is not None:
            (store / name).write_bytes(left)
        with pytest.raises(FormatError, match=f"late/{name}"):
            LateTokens.open(store)
    (store / name).write_bytes(whole)
    LateTokens.open(store)


def test_a_store_that_was_not_ended_is_refused(tmp_path: Path) -> None:
    with LateWriter(tmp_path / "late", HEADER) as writer:
        writer.add(ROWS)
    HEADER.model_copy(update={"rows": 6, "tokens": 29}).save(tmp_path / "late" / "late.json")
    with pytest.raises(FormatError, match=r"starts\.npy"):
        LateTokens.open(tmp_path / "late")


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("format", 2, r"late/late\.json is not of format 1"),
        ("model", "", r"late/late\.json is not of format 1: model"),
        ("size", 0, r"late/late\.json is not of format 1: size"),
        ("size", 20, r"late/late\.json is not of format 1: size"),
        ("size", 520, r"late/late\.json is not of format 1: size"),
        ("size", 32, r"late/codes\.npy is damaged: it holds 3 bytes a token, expected 4"),
        ("budget", 0, r"late/late\.json is not of format 1: budget"),
        ("budget", 11, r"late/starts\.npy is damaged"),
        ("rows", 5, r"late/starts\.npy holds int64 \[7\], expected int64 \[6\]"),
        ("rows", -1, r"late/late\.json is not of format 1: rows"),
        ("tokens", 28, r"late/starts\.npy is damaged: it does not cut 28 tokens into rows"),
        ("other", 1, r"late/late\.json is not of format 1: other"),
        *((name, None, rf"late/late\.json is not of format 1: {name}") for name in LateHeader.model_fields if name != "format"),
    ],
)  # fmt: skip
def test_a_header_of_another_store_is_named(store: Path, field: str, value: Any, told: str) -> None:
    header = json.loads((store / "late.json").read_bytes())
    header[field] = value
    if value is None:
        del header[field]
    (store / "late.json").write_text(json.dumps(header))
    with pytest.raises(FormatError, match=told):
        LateTokens.open(store)


def test_starts_that_cut_otherwise_are_named(store: Path) -> None:
    starts = np.load(store / "starts.npy")
    cuts = ((0, 1), (0, -1), (3, starts[2]), (4, 10_000), (-1, starts[-1] + 1), (2, starts[3] + 1))
    for place, value in cuts:
        changed = starts.copy()
        changed[place] = value
        np.save(store / "starts.npy", changed)
        with pytest.raises(FormatError, match=r"late/starts\.npy is damaged"):
            LateTokens.open(store)


@pytest.mark.parametrize(
    ("name", "kind", "shape"),
    [
        ("starts.npy", np.int32, (7,)),
        ("starts.npy", np.int64, (8,)),
        ("codes.npy", np.int8, (29, 3)),
        ("codes.npy", np.uint8, (28, 3)),
        ("codes.npy", np.uint8, (29, 4)),
        ("codes.npy", np.uint8, (87,)),
        ("places.npy", np.int16, (29,)),
        ("places.npy", np.uint16, (30,)),
        ("places.npy", np.uint16, (29, 1)),
    ],
)
def test_arrays_of_another_type_or_shape_are_named(
    store: Path, name: str, kind: type[np.generic], shape: tuple[int, ...]
) -> None:
    np.save(store / name, np.zeros(shape, kind))
    with pytest.raises(FormatError, match=f"late/{name}"):
        LateTokens.open(store)


def test_a_store_of_another_index_is_refused(store: Path) -> None:
    with pytest.raises(FormatError, match="it counts 6 rows, the index has 7"):
        LateTokens.open(store, 7)
