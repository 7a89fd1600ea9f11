"""What a pre-trained encoder is worth after training: towers by cosine, the attention itself (Eq. 10), and a relation of pairs (Eq. 11)."""

from pathlib import Path

import numpy as np
import torch

from glow.nn import PairClassifier, ranking_loss
from glow.records import Query
from glow.training import Collection, TrainConfig, TrainInputs, train
from glow.training.encode import EncodedCorpus, EncodeOptions, open_source
from glow.training.pretraining import load_pretrained
from research.pretraining.ranking import DEPTH, Rankings, SentenceTexts, padded, rank_without_labels

__all__ = ["RELATIONS", "tuned_attention", "tuned_pairs", "tuned_towers"]

BATCH, LONGEST_TRAINED = 64, 64
RELATIONS = ("other page", "follows", "precedes")


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
    """Best documents of `dev`'s queries after so many steps of 64 pairs, both towers from one checkpoint; words weigh 1."""
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
    train(config, TrainInputs((data,), "train", out, checkpoint, checkpoint, device="cpu"))
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
    model = load_pretrained(checkpoint).model.train()
    assert model.crossed is not None  # noqa: S101 - asked for of Cross-Thought alone
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    random = np.random.default_rng(seed)
    pairs = [(query, row) for query, rows in enumerate(texts.collection.relevant) for row in sorted(rows)]
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, 10 * (step + 1) / steps) * (1.0 - step / steps)
        chosen = [pairs[place] for place in random.choice(len(pairs), BATCH, replace=False)]
        queries = padded([texts.queries[query] for query, _ in chosen])
        documents = padded([texts.documents[row][:LONGEST_TRAINED] for _, row in chosen])
        with torch.autocast("cpu", torch.bfloat16):
            asked, ranked = (model.crossed.embed(*side) for side in (queries, documents))
        logits = model.crossed.logits(asked, ranked)
        also = [[row in texts.collection.relevant[query] for _, row in chosen] for query, _ in chosen]
        others = torch.tensor(also) & ~torch.eye(BATCH, dtype=torch.bool)
        loss = ranking_loss(logits.masked_fill(others, -torch.inf), torch.arange(BATCH))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    found = rank_without_labels(model.eval(), dev)
    return {name: found[name] for name in ("logits", "shares")}


def tuned_pairs(
    checkpoint: Path, texts: SentenceTexts, steps: int, seed: int, rate: float, *, symmetric: bool
) -> float:
    """Share of pairs whose relation is recognised, of pages that were not trained on: another page's, or the next or last part of the same.

    Args:
        checkpoint: of Cross-Thought.
        texts: whose documents are cut in two.
        steps, seed, rate: of the training.
        symmetric: whether the head sees the mean of both sequences, as released, in the place of both side by side.
    """
    model = load_pretrained(checkpoint).model
    assert model.crossed is not None  # noqa: S101 - asked for of Cross-Thought alone
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
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=rate, weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, 10 * (step + 1) / steps) * (1.0 - step / steps)
        sequences, relations = _pairs(long, order[held:], BATCH, random)
        with torch.autocast("cpu", torch.bfloat16):
            logits = classifier(*padded(sequences))
        loss = torch.nn.functional.cross_entropy(logits.float(), torch.tensor(relations))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    classifier.eval()
    right = total = 0
    for _ in range(20):
        sequences, relations = _pairs(long, order[:held], BATCH, random)
        with torch.inference_mode():
            right += int((classifier(*padded(sequences)).argmax(-1) == torch.tensor(relations)).sum())
        total += BATCH
    return right / total


def _pairs(
    documents: list[list[int]], rows: np.ndarray, count: int, random: np.random.Generator
) -> tuple[list[list[int]], list[int]]:
    """Sequences, two of each pair after one another, and their relations."""
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
