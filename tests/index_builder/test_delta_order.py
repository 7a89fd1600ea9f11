"""What orders documents by their own values goes over base and delta."""

import json
from collections.abc import Callable
from pathlib import Path

import click.testing
import numpy as np
import pytest

from glow.index import Index
from glow.index.columns import COLUMNS, value_ranks
from glow.index.stored_fields import STORED_FIELDS

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


@pytest.fixture
def both(
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
    assert build(tmp_path / "base").exit_code == 0
    done = run("upsert", "--input", tmp_path / "added", "--index-root", output, "--model", toy_model)
    assert done.exit_code == 0, done.stderr
    delta = live()
    assert run("compact", "--index-root", output).exit_code == 0
    return delta, live()


def rows(index: Index) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([index[STORED_FIELDS].find(name) for name in SAME], np.int64)


RANKED = (
    ("day", False, ["b", "a", "d"]),
    ("day", True, ["b", "a", "d"]),
    ("price", False, ["b", "a", "d", "c"]),  # whole numbers that no float64 tells apart
    ("price", True, ["b", "a", "d", "c"]),
    ("tags", False, ["a", "b"]),  # a has m and x, b has n
    ("tags", True, ["b", "a"]),
)
"""Field, whether the largest value counts, and the ids in order."""


def test_values_of_base_and_delta_are_ranked_together(both: tuple[Index, Index]) -> None:
    for index in both:
        for field, is_largest, wanted in RANKED:
            ranks = value_ranks(index[COLUMNS].columns, field, rows(index), largest=is_largest)
            ranked = sorted(
                (rank, name) for rank, name in zip(ranks.tolist(), SAME, strict=True) if rank >= 0
            )
            assert [name for _, name in ranked] == wanted, (field, is_largest)
            assert len({rank for rank, _ in ranked}) == len(wanted)
