"""Measures fine-tuned pre-trained encoders: towers by cosine, attention (Eq. 10), and pair classification (Eq. 11)."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glow.records import Query
from glow.training import Collection, Given, TrainConfig, train
from glow.training.encode import EncodedCorpus, EncodeOptions, open_source
from glow.training.pretraining import load_pretrained
from glow.training.run import Moment, OptimizerOptions
from research.pretraining.crossed import PairClassifier, ranking_loss
from research.pretraining.ranking import DEPTH, Rankings, SentenceTexts, padded, rank_without_labels
from research.steps import UNCLIPPED, Draws, take_steps

__all__ = ["RELATIONS", "tuned_attention", "tuned_pairs", "tuned_towers"]

BATCH, LONGEST_TRAINED = 64, 64
RELATIONS = ("other page", "follows", "precedes")
Pairs = tuple[list[list[int]], list[int]]


def tuned_towers(
    checkpoint: Path,
    layers: int,
    data: Path,
    dev: Collection,
    out: Path,
    steps: int,
    seed: int,
    rate: float,
    pooling: str,
) -> Rankings:
    """Best documents of `dev`'s queries after steps of 64 pairs, with both towers from one checkpoint and weights of 1."""
    config = TrainConfig.model_validate(
        {
            "name": "tuned",
            "seed": seed,
            "document_tokens": 128,
            "checkpoint_steps": 10_000,
            "weighting": {"formula": "none"},
            "towers": {"init_layers": list(range(layers)), "pooling": pooling},
            "optimizer": {"batch_size": BATCH, "epochs": 10, "max_steps": steps, "learning_rate": rate},
        }
    )
    train(config, Given(data=[data], out=out, init=checkpoint, device="cpu"))
    corpus = EncodedCorpus(open_source(out, EncodeOptions()), dev.documents)
    rows = {identifier: row for row, identifier in enumerate(corpus.ids)}
    run = corpus.search([Query(str(i), text) for i, text in enumerate(dev.queries)], DEPTH)
    found = np.full((len(dev.queries), DEPTH), -1, np.int64)
    for number in range(len(dev.queries)):
        hits = [rows[hit.document_id] for hit in run[str(number)]]
        found[number, : len(hits)] = hits
    return found


def tuned_attention(
    checkpoint: Path, texts: SentenceTexts, dev: SentenceTexts, steps: int, seed: int, rate: float
) -> dict[str, Rankings]:
    """Best documents of `dev`'s queries by attention after training with Eq. 10 against the documents of the batch."""
    model = load_pretrained(checkpoint).model
    crossed, relevant = model.crossed, texts.collection.relevant
    assert crossed is not None  # noqa: S101 - asked for of Cross-Thought alone
    pairs = [(query, row) for query, rows in enumerate(relevant) for row in sorted(rows)]

    def draw(random: np.random.Generator) -> list[tuple[int, int]]:
        return [pairs[place] for place in random.choice(len(pairs), BATCH, replace=False)]

    def loss(chosen: list[tuple[int, int]], moment: Moment) -> Tensor:
        queries = padded([texts.queries[query] for query, _ in chosen])
        documents = padded([texts.documents[row][:LONGEST_TRAINED] for _, row in chosen])
        with moment.autocast():
            asked, ranked = (crossed.embed(*side) for side in (queries, documents))
        also = torch.tensor([[row in relevant[query] for _, row in chosen] for query, _ in chosen])
        others = also & ~torch.eye(BATCH, dtype=torch.bool)
        logits = crossed.logits(asked, ranked).masked_fill(others, -torch.inf)
        return ranking_loss(logits, torch.arange(BATCH))

    take_steps(model, Draws(seed, steps, draw), loss, _options(rate), steps // 10)
    found = rank_without_labels(model, dev)
    return {name: found[name] for name in ("logits", "shares")}


def tuned_pairs(
    checkpoint: Path, texts: SentenceTexts, steps: int, seed: int, rate: float, *, symmetric: bool
) -> float:
    """Accuracy of pair classification on held-out pages: other page, or the next or previous part of the same.

    Args:
        checkpoint: a Cross-Thought checkpoint.
        texts: documents to cut in two.
        steps, seed, rate: options of the training.
        symmetric: whether the head gets the mean of both sequences, as released, instead of both concatenated.
    """
    model = load_pretrained(checkpoint).model
    assert model.crossed is not None  # noqa: S101 - asked for of Cross-Thought alone
    torch.manual_seed(seed)
    classifier = PairClassifier(model.crossed, len(RELATIONS))
    if symmetric:
        half = classifier.head.in_features // 2
        classifier.head.register_forward_pre_hook(
            lambda _, given: (given[0].unflatten(1, (2, half)).mean(1).repeat(1, 2),)
        )
    long = [ids for ids in texts.documents if len(ids) >= LONGEST_TRAINED]
    random = np.random.default_rng(seed)
    order = random.permutation(len(long))
    held = len(long) // 5

    def draw(random: np.random.Generator) -> Pairs:
        return _pairs(long, order[held:], BATCH, random)

    def loss(drawn: Pairs, moment: Moment) -> Tensor:
        sequences, relations = drawn
        with moment.autocast():
            logits = classifier(*padded(sequences))
        return torch.nn.functional.cross_entropy(logits.float(), torch.tensor(relations))

    take_steps(classifier, Draws(seed, steps, draw), loss, _options(rate), steps // 10)
    right = total = 0
    for _ in range(20):
        sequences, relations = _pairs(long, order[:held], BATCH, random)
        with torch.inference_mode():
            right += int((classifier(*padded(sequences)).argmax(-1) == torch.tensor(relations)).sum())
        total += BATCH
    return right / total


def _options(rate: float) -> OptimizerOptions:
    return OptimizerOptions(learning_rate=rate, clip_norm=UNCLIPPED)


def _pairs(documents: list[list[int]], rows: np.ndarray, count: int, random: np.random.Generator) -> Pairs:
    """Sequences, two consecutive ones per pair, and their relations."""
    sequences, relations = [], random.integers(0, len(RELATIONS), count).tolist()
    for relation in relations:
        first, other = (documents[row] for row in random.choice(rows, 2, replace=False))
        middle = len(first) // 2
        parts = [first[:middle], first[middle:]]
        if relation == 0:
            parts = [
                parts[int(random.integers(2))],
                other[: len(other) // 2] if random.random() < 0.5 else other[len(other) // 2 :],
            ]
        elif relation == 2:
            parts.reverse()
        sequences += parts
    return sequences, relations
