"""What orders and compares documents by their own parts goes over base and delta: values of columns, vectors of documents."""

import json
from collections.abc import Callable
from pathlib import Path

import click.testing
import numpy as np
import pytest

from glow.index import Index
from glow.index.columns import COLUMNS, value_ranks
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS

Run = Callable[..., click.testing.Result]
BASE = [
    {"_id": "a", "text": "Bees dance. They hum.", "day": "2024-03-01", "price": 3, "tags": ["x", "m"]},
    {"_id": "b", "text": "Owls hunt. They are quiet.", "day": "2024-01-01T10:00:00Z", "tags": ["q"]},
    {"_id": "c", "text": "Whales sing.", "price": 2**53 + 1},
]
ADDED = [
    {
        "_id": "b",
        "text": "Owls fly. They hoot.",
        "day": "2024-01-01T12:00:00+03:00",
        "price": 2.5,
        "tags": ["n"],
    },
    {"_id": "d", "text": "Ants walk. They carry.", "day": "2025-01-01", "price": 2**53},
    {"_id": "e", "text": "Bats call."},
]
SAME = ("c", "a", "b", "d", "e")
"""Ids in the order of the rows of both versions, as they are asked about."""


@pytest.fixture(params=[("flat",), ("hnsw",), ("flat", "--passages")], ids=" ".join)
def both(
    request: pytest.FixtureRequest,
    build: Run,
    run: Run,
    live: Callable[[], Index],
    toy_model: Path,
    output: Path,
    tmp_path: Path,
) -> tuple[Index, Index]:
    """A base with a delta, and the same documents compacted."""
    for name, documents in (("base", BASE), ("added", ADDED)):
        (tmp_path / name).write_text("".join(json.dumps(each) + "\n" for each in documents))
    kind, *options = request.param
    assert build(tmp_path / "base", "--index", kind, *options).exit_code == 0
    done = run("upsert", "--input", tmp_path / "added", "--output", output, "--model", toy_model)
    assert done.exit_code == 0, done.stderr
    delta = live()
    assert run("compact", "--output", output).exit_code == 0
    return delta, live()


def rows(index: Index) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([index[STORED_FIELDS].find(name) for name in SAME], np.int64)


@pytest.mark.parametrize(
    ("field", "smallest", "largest"),
    [
        ("day", ["b", "a", "d"], ["b", "a", "d"]),
        ("price", ["b", "a", "d", "c"], ["b", "a", "d", "c"]),  # whole numbers that no float64 tells apart
        ("tags", ["a", "b"], ["b", "a"]),  # a has m and x, b has n
    ],
)
def test_values_of_base_and_delta_are_ranked_together(
    both: tuple[Index, Index], field: str, smallest: list[str], largest: list[str]
) -> None:
    for index in both:
        assert index[COLUMNS].columns is not None
        for wanted, is_largest in ((smallest, False), (largest, True)):
            ranks = value_ranks(index[COLUMNS].columns, field, rows(index), largest=is_largest)
            ranked = sorted(
                (rank, name) for rank, name in zip(ranks.tolist(), SAME, strict=True) if rank >= 0
            )
            assert [name for _, name in ranked] == wanted
            assert len({rank for rank, _ in ranked}) == len(wanted)


def test_vectors_of_base_and_delta_are_read_by_row(both: tuple[Index, Index]) -> None:
    delta, compacted = both
    assert delta.delta is not None and compacted.delta is None
    for index in both:
        assert index[VECTORS].has_vectors
    if not delta.holds(PASSAGES):
        mine, theirs = (index[VECTORS].vectors(rows(index)) for index in both)
        np.testing.assert_array_equal(mine, theirs)
        return
    for here, there in zip(rows(delta).tolist(), rows(compacted).tolist(), strict=True):
        np.testing.assert_array_equal(passage_vectors(delta, here), passage_vectors(compacted, there))


def passage_vectors(index: Index, row: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    assert index.holds(PASSAGES)
    found = index[VECTORS].vectors(np.flatnonzero(index[PASSAGES].documents == row))
    assert len(found)
    return found
