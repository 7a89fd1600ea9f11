"""Inputs and losses of a re-ranker's training: first-stage candidates, batches of them, and the losses."""

from pathlib import Path

import numpy as np
import pytest
import torch

from glow.errors import MismatchError
from glow.training.data import Collection
from glow.training.rerank import CandidateBatches, Candidates, read_candidates, rerank_loss


def test_candidates_are_the_first_of_each_query_in_order(toy_collection: Collection, run_file: Path) -> None:
    found = read_candidates(run_file, toy_collection, 4)
    assert {len(rows) for rows in found.rows} == {4}
    assert all((np.diff(scores) < 0).all() for scores in found.scores)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nobody Q0 bees 1 0.5 t", "holds no query of toy"),
        ("a0 Q0 nothing 1 0.5 t", "'nothing', which toy does not have"),
    ],
)
def test_a_run_of_another_collection_is_refused(
    toy_collection: Collection, tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "other.trec"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(MismatchError, match=said):
        read_candidates(path, toy_collection, 10)


def test_a_batch_has_the_relevant_document_first_and_no_other_that_is(candidates: Candidates) -> None:
    batches = CandidateBatches([candidates], 8, 3, seed=1)
    seen: list[int] = []
    for step in range(batches.steps(1)):
        batch = batches.batch(step, 0, 1)
        seen += batch.queries.tolist()
        for query, documents, scores in zip(
            batch.queries.tolist(), batch.documents, batch.scores, strict=True
        ):
            relevant = candidates.collection.relevant[query]
            assert [row in relevant for row in documents.tolist()] == [True, False, False, False]
            assert len(set(documents.tolist())) == 4
            ranked = dict(
                zip(candidates.rows[query].tolist(), candidates.scores[query].tolist(), strict=True)
            )
            assert [ranked[row] for row in documents.tolist()] == scores.tolist()
    assert len(seen) == len(set(seen)) == 8 * batches.steps(1)
    assert 0 not in seen, "its relevant document was not found"


def test_a_batch_depends_on_seed_and_step_alone(candidates: Candidates) -> None:
    def documents(seed: int, *steps: int) -> list[list[int]]:
        batches = CandidateBatches([candidates], 8, 3, seed, epochs=2)
        return [batches.batch(step, 0, 1).documents.tolist() for step in steps]

    epoch = CandidateBatches([candidates], 8, 3, 1).steps(1)
    assert documents(1, epoch + 2) == documents(1, 3, epoch + 2)[1:]
    assert documents(1, epoch + 2) != documents(1, 2)
    assert documents(1, epoch + 2) != documents(2, epoch + 2)


def test_candidates_without_a_relevant_document_are_refused(candidates: Candidates) -> None:
    none = Candidates(candidates.collection, [rows[:0] for rows in candidates.rows], candidates.scores)
    with pytest.raises(MismatchError, match="no query has a relevant document and 3 others"):
        CandidateBatches([none], 8, 3, seed=0)


@pytest.mark.parametrize(
    ("kind", "logits", "expected"),
    [
        # The released code's loss: 1 - e^2 / (e^2 + e^1); a relevant document that leads by much costs nothing.
        ("pairwise", [[2.0, 1.0]], 0.268941),
        ("pairwise", [[0.0, 0.0], [100.0, 0.0]], 0.25),
        ("list", [[0.0, 0.0, 0.0, 0.0]], 1.386294),
        ("list", [[2.0, 1.0]], 0.313262),
    ],
)
def test_the_loss_has_the_value_worked_out_by_hand(
    kind: str, logits: list[list[float]], expected: float
) -> None:
    assert float(rerank_loss(torch.tensor(logits), kind)) == pytest.approx(expected, abs=1e-5)
