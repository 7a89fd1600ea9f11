"""What fails is tried again, and what fails again is searched for the documents that are to blame."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from glow.errors import BuildError
from glow_index_builder.encoding.record_files import EncodedTexts
from glow_index_builder.encoding.runner import Outcome
from glow_index_builder.encoding.schedule import FIRST_FAILURES, EncodedShards, encode_shards
from glow_index_builder.encoding.shards import Shard, plan_shards, write_shard

Fails = Callable[[Shard, int], bool]


class Scripted:
    """A runner that writes row numbers as vectors and fails where a function says so."""

    def __init__(self, folder: Path, fails: Fails) -> None:
        self._folder = folder
        self._fails = fails
        self.tries: list[Shard] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, shards: Sequence[Shard], *, careful: bool = False) -> Iterator[Outcome]:
        """As `Runner.run`."""
        for shard in shards:
            self.tries.append(shard)
            if self._fails(shard, self.tries.count(shard)):
                yield Outcome(shard, fault="it fell over")
                continue
            skipped = {row for row, _ in shard.skip}
            rows = [row for row in range(shard.start, shard.stop) if row not in skipped]
            vectors = np.array([[row, 0] for row in rows], np.float32).reshape(-1, 2)
            ids = [str(row) for row in rows]
            report = (
                None if shard.is_probe else write_shard(self._folder, shard, ids, [EncodedTexts({}, vectors)])
            )
            yield Outcome(shard, report)


def encode(
    folder: Path, fails: Fails, count: int = 40, size: int = 16
) -> tuple[EncodedShards, Scripted, list[int]]:
    folder.mkdir(exist_ok=True)
    runner, done = Scripted(folder, fails), list[int]()
    return encode_shards(runner, plan_shards(count, size), folder, 2, done.append), runner, done


def holds(*rows: int) -> Fails:
    def fails(shard: Shard, tries: int) -> bool:
        skipped = {row for row, _ in shard.skip}
        return any(shard.start <= row < shard.stop and row not in skipped for row in rows)

    return fails


def test_vectors_are_those_of_all_shards_in_order(tmp_path: Path) -> None:
    found, _, done = encode(tmp_path, lambda shard, tries: False)
    vectors = found.files.vectors()
    assert vectors.shape == (40, 2)
    assert vectors[0:100][:, 0].tolist() == list(range(40))
    assert vectors[15:18][:, 0].tolist() == [15, 16, 17]
    assert vectors[np.array([[39, 0], [20, 17]])][..., 0].tolist() == [[39, 0], [20, 17]]
    assert sum(done) == 40


def test_a_shard_that_failed_once_is_done_whole(tmp_path: Path) -> None:
    found, runner, done = encode(tmp_path, lambda shard, tries: shard.start == 16 and tries == 1)
    assert (found.failures, found.poison, sum(done)) == (1, {}, 40)
    assert not any(shard.is_probe for shard in runner.tries)


@pytest.mark.parametrize("rows", [(0,), (39,), (17, 18), (16, 31), tuple(range(32, 40))])
def test_poison_is_found_and_left_out(tmp_path: Path, rows: tuple[int, ...]) -> None:
    found, _, _ = encode(tmp_path, holds(*rows))
    assert found.poison == dict.fromkeys(rows, "it fell over")
    left = [row for row in range(40) if row not in rows]
    assert found.files.vectors()[0:100][:, 0].tolist() == left
    again, runner, done = encode(tmp_path, holds(*rows))
    assert (again.poison, again.resumed, runner.tries) == (found.poison, 3, [])
    assert sum(done) == 40


def test_a_document_is_not_blamed_for_one_death(tmp_path: Path) -> None:
    """Three deaths in a row of one shard, none of them a document's."""
    found, _, _ = encode(
        tmp_path, lambda shard, tries: shard.start == 16 and tries <= 2 and not shard.is_probe
    )
    assert (found.poison, found.failures) == ({}, 2)


def test_documents_that_fail_only_together_end_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="documents 16 to 31 cannot be encoded together"):
        encode(tmp_path, lambda shard, tries: shard.start == 16 and not shard.is_probe)


def test_a_model_that_fails_on_everything_is_not_searched_for_poison(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, lambda shard, tries: True)
    with pytest.raises(BuildError, match=f"first {FIRST_FAILURES} shards failed.*it fell over"):
        encode_shards(runner, plan_shards(1000, 2), tmp_path, 2, lambda _: None)
    assert len(runner.tries) == FIRST_FAILURES


def test_a_shard_of_other_documents_is_not_taken_for_done(tmp_path: Path) -> None:
    encode(tmp_path, lambda shard, tries: False)
    for name in ("0000000000-0000000016.json", "0000000016-0000000032.json"):
        path = tmp_path / name
        path.write_text(path.read_text().replace('"ids": ["', '"ids": ["x'))
    (tmp_path / "0000000032-0000000040.json").write_text("{")
    found, runner, _ = encode(tmp_path, lambda shard, tries: False)
    assert (found.resumed, len(runner.tries)) == (0, 3)
