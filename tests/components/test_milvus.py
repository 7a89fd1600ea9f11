"""Vectors of a base in a collection of Milvus answer as those in a file."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.errors import MismatchError
from glow.index import (
    DELTA,
    ImportRows,
    RangeTask,
)
from glow.index.milvus import MilvusVectors
from glow.index.ranking import RowMask
from glow.index.vectors import (
    VECTORS,
)
from tests.components.made_vectors import (
    NEW,
    OLD,
    Array,
    built,
    corpus_of,
    joined,
    kept,
    made,
    opened,
    rules_of,
    verified,
)


def here(ranges: int, seen: list[tuple[int, int]]) -> Callable[[RangeTask], ImportRows]:
    """Does a task as other machines would: of a copy, in ranges."""

    def spread(task: RangeTask) -> ImportRows:
        copy = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own

        def run(collection: str, start: int, stop: int) -> Iterator[int]:
            for first in range(start, stop, ranges):
                last = min(first + ranges, stop)
                copy(collection, first, last)
                seen.append((first, last))
                yield last

        return run

    return spread


def test_a_base_in_milvus_answers_as_one_in_a_file(
    vectors: Array, gone: NDArray[np.int64], tmp_path: Path
) -> None:
    address = f"milvus://{tmp_path / 'vectors.db'}"
    file = built(tmp_path / "file", vectors[:OLD], rules_of("flat"))
    segment = made(tmp_path / "base", OLD, index="flat")
    rules, seen, steps = rules_of("flat", store=address), list[tuple[int, int]](), list[int]()
    VECTORS.build(corpus_of(segment, vectors[:OLD], spread=here(250, seen), advance=steps.append), rules)
    assert seen == [(0, 250), (250, 500), (500, OLD)] and sum(steps) == OLD
    assert [path.name for path in segment.folder.iterdir()] == ["vectors.json"]
    assert VECTORS.report(opened(segment), rules, {})["index"]["store"] == address
    base = opened(verified(segment))
    assert isinstance(base[VECTORS], MilvusVectors)
    delta = built(tmp_path / "delta", vectors[OLD:], rules_of("flat"), DELTA)
    views = [VECTORS.join(joined(each, delta, gone)) for each in (file, base)]
    mask = RowMask(np.arange(OLD + NEW) % 3 == 0)
    for allowed in (None, mask):
        answers = [view.search(vectors[[2, 300, OLD + 1]], 10, None, allowed) for view in views]
        np.testing.assert_array_equal(answers[0][1], answers[1][1])
        np.testing.assert_allclose(answers[0][0], answers[1][0], atol=1e-6)
    target = made(tmp_path / "compacted", OLD - len(gone) + NEW)
    compacted = VECTORS.rules_of(base, delta=False)
    assert compacted is not None and compacted.store == address
    VECTORS.merge(kept(base, delta, gone), compacted, target)
    assert [path.name for path in target.folder.iterdir()] == ["vectors.json"]
    whole = np.delete(vectors, gone, axis=0)
    np.testing.assert_array_equal(opened(verified(target))[VECTORS].vectors(np.arange(len(whole))), whole)
    with pytest.raises(MismatchError, match="belongs to another model, term statistics or set of vectors"):
        VECTORS.open(replace(verified(target), hashes={"model": "x", "terms": "y"}))
