"""Training of learned impacts: what is minimised, that it is learned, and kept."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from glow.errors import ConfigError
from glow.nn import TermImpacts
from glow.options import merged
from glow.training import Given, Progress, train
from glow.training.checkpoint import load_impacts
from glow.training.data import Collection
from glow.training.impacts import ImpactLoss, ImpactsConfig

SMALL = {
    "name": "toy",
    "checkpoint_steps": 5,
    "impacts": {"dimensions": 8},
    "objective": {"negatives": 2, "depth": 10},
    "optimizer": {"batch_size": 8, "steps": 60, "warmup": 5, "learning_rate": 5e-3},
}


def config(**changes: Any) -> ImpactsConfig:
    return ImpactsConfig.model_validate(merged(SMALL, changes))


@pytest.fixture
def given(collection_folder: Path, run_file: Path, toy_model: Path, tmp_path: Path) -> Given:
    return Given(data=[collection_folder], candidates=[run_file], out=tmp_path / "head", init=toy_model)


def test_a_run_learns_and_says_what_it_did(given: Given) -> None:
    told: list[Progress] = []
    longer = config(objective={"penalty": 0.0}, optimizer={"steps": 150})
    report = train(longer, given, tell=told.append)
    losses = [progress.loss for progress in told]
    assert losses[-1] < 0.7 * losses[19]  # means of the last 50 steps, and of the first 20
    trained = load_impacts(given.out)
    assert report["data"][0]["queries"] > 10 and report["model"].startswith("toy-model")
    assert sum(trained.priors.values()) == pytest.approx(1.0) and "the" not in trained.priors
    assert trained.report["fingerprint"] == report["fingerprint"]


def test_the_penalty_makes_impacts_few(given: Given, tmp_path: Path) -> None:
    cuts = []
    for penalty in (0.0, 30.0):
        out = tmp_path / f"penalty-{penalty}"
        train(config(objective={"penalty": penalty}), replace(given, out=out))
        cuts.append(float(load_impacts(out).head.cut.detach()))
    assert cuts[1] > cuts[0] + 0.02


class FixedHead(TermImpacts):
    """Impacts of the words a and b on three documents, and half of BM25."""

    bm25_weight = torch.tensor(0.5)

    def forward(self, words: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])


def test_the_loss_by_hand() -> None:
    """Queries "a a b" and "b"; the third document answers the first as well, so that it is no negative of it."""
    bm25 = {("a", "a", "b"): [1.0, 0.0, 2.0], ("b",): [0.0, 3.0, 1.0]}
    collection = SimpleNamespace(
        words=[["a", "a", "b"], ["b"]],
        idf=lambda words: np.ones(len(words), np.float32),
        states=lambda rows: (torch.ones(3, 2, 4), torch.ones(3, 2, dtype=torch.bool)),
        bm25=SimpleNamespace(score=lambda query, rows: np.array(bm25[tuple(query)], np.float32)),
        found=SimpleNamespace(collection=SimpleNamespace(relevant=[{10, 12}, {11}])),
    )
    batch: Any = SimpleNamespace(
        collection=collection,
        queries=np.arange(2),
        documents=np.array([10, 11, 12]),
        relevant=np.array([0, 1]),
    )
    words: Any = SimpleNamespace(of=lambda some: np.ones((len(some), 4), np.float32))
    loss = ImpactLoss(config(objective={"penalty": 0.1}), FixedHead(4, 2), words)
    moment: Any = SimpleNamespace(step=10)  # half of 4 times 5 steps of warm-up
    found = loss(batch, moment)
    # Scores 2 + 0 + .5 against 0 + 1 + 0; and 1 + 1.5 against 0 and 1 + .5.
    wanted = (math.log1p(math.exp(-1.5)) + math.log1p(math.exp(-2.5) + math.exp(-1.0))) / 2
    assert float(found.shown) == pytest.approx(wanted, abs=1e-6)
    assert float(found.value) == pytest.approx(wanted + 0.1 * 0.5 * (5 / 6), abs=1e-6)


def test_impacts_by_hand() -> None:
    """5 (best cosine - .1) softplus(.5 + .1 (idf - 5)), and 0 if the best cosine is below .1."""
    head = TermImpacts(2, 2)
    for part in (head.word, head.token):
        torch.nn.init.eye_(part.weight)
    words, gains = head.words(torch.eye(2), torch.tensor([5.0, 15.0]))
    assert gains.tolist() == pytest.approx([math.log1p(math.exp(0.5)), math.log1p(math.exp(1.5))])
    tokens = head.tokens(torch.tensor([[[3.0, 4.0], [-1.0, 0.0], [9.0, 0.0]]]))
    found = head(words, torch.tensor([1.0, 2.0]), tokens, torch.tensor([[True, True, False]]))
    assert found[:, 0].tolist() == pytest.approx([5 * 0.5, 5 * 0.7 * 2], abs=1e-6)
    assert head(words, gains, tokens[:, 1:], torch.tensor([[True, False]])).tolist() == [[0.0], [0.0]]


def test_padding_says_nothing() -> None:
    torch.manual_seed(0)
    head = TermImpacts(12, 4)
    words, gains = head.words(torch.randn(5, 12), torch.ones(5))
    tokens = head.tokens(torch.randn(2, 9, 12))
    mask = torch.arange(9)[None] < torch.tensor([[4], [9]])
    found = head(words, gains, tokens, mask)
    assert torch.allclose(found[:, :1], head(words, gains, tokens[:1, :4], mask[:1, :4]))
    assert (found >= 0).all()


def test_documents_of_the_collection_are_encoded_once(
    given: Given, toy_collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(config(optimizer={"steps": 2}), given)
    sizes = next(given.out.with_name("head.run").glob("*/sizes.npy"))
    assert len(np.load(sizes)) == len(toy_collection.documents)
    monkeypatch.setattr("glow.nn.Tower.states", lambda *_: pytest.fail("encoded again"))
    train(config(optimizer={"steps": 2}), given)


def test_a_teacher_is_refused(given: Given) -> None:
    with pytest.raises(ConfigError, match="--teacher"):
        train(config(), replace(given, teacher=given.init))
