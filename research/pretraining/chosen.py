"""Which sequence does Cross-Thought's attention choose on real text, and what has it in common with the question?

M   sequences of a sample       L   tokens of a sequence
"""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from numpy.typing import NDArray

from glow.nn import CrossThought
from glow.text import WordPieces
from glow.training.pretraining import load_pretrained, mask_pieces, read_texts

__all__ = ["attended", "chosen_on_text", "common"]

SEQUENCES, LENGTH, MASKED = 32, 64, 0.15
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def chosen_on_text(folder: Path, text: Path, count: int, seed: int, picture: Path | None) -> dict[str, Any]:
    """What one masked sequence of each sample attends to most, itself left out.

    Args:
        folder: a checkpoint of `cross-thought`.
        text: corpus whose samples are drawn.
        count: number of samples.
        seed: of the draw.
        picture: PNG file of the first sample: attention beside common words.

    Returns:
        `entropy` of the attention, 1 if uniform; `neighbor`: how often the chosen sequence is next to the question, and
        `neighbor_chance`; `common` of the chosen one and `common_chance`, its mean over the others; `most_common`: how
        often it is the one with most in common (by chance 1/(M - 1)).
    """
    opened = load_pretrained(folder)
    model, pieces = opened.model.crossed, opened.pieces
    assert model is not None  # noqa: S101 - the objective is cross-thought
    stream = _stream(text, pieces)
    idf = _idf(stream, pieces.size)
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for start in (
        random.choice(len(stream) // (SEQUENCES * LENGTH), count, replace=False) * SEQUENCES * LENGTH
    ):
        ids = stream[start : start + SEQUENCES * LENGTH].reshape(SEQUENCES, LENGTH)
        shares = attended(model, ids, pieces, random)
        alike = common(ids, idf)
        if picture is not None and not rows:
            _draw(shares, alike, picture)
        asked = int(random.integers(SEQUENCES))
        others = np.delete(np.arange(SEQUENCES), asked)
        best = others[shares[asked, others].argmax()]
        near = np.abs(others - asked) == 1
        rows.append(
            {
                "entropy": -(shares * np.log(shares)).sum(1).mean() / np.log(SEQUENCES),
                "neighbor": abs(best - asked) == 1,
                "neighbor_chance": near.mean(),
                "common": alike[asked, best],
                "common_chance": alike[asked, others].mean(),
                "most_common": alike[asked, best] == alike[asked, others].max(),
            }
        )
    return {name: round(float(np.mean([row[name] for row in rows])), 4) for name in rows[0]}


def attended(model: CrossThought, ids: Ints, pieces: WordPieces, random: np.random.Generator) -> Floats:
    """Mean attention of masked sequences int64 [M, L] to the unmasked ones, float32 [M, M]; rows sum to 1."""
    special = np.isin(ids, (pieces.sep_id, pieces.cls_id, pieces.pad_id))
    masked, _ = mask_pieces(ids, special, MASKED, pieces.mask_id, pieces.size, random)
    there = torch.ones(ids.shape, dtype=torch.bool)
    with torch.no_grad():
        asked, ranked = (model.embed(torch.from_numpy(each), there) for each in (masked, ids))
        shares: Floats = model.logits(asked, ranked).softmax(-1).mean(0).numpy()
    return shares


def common(ids: Ints, idf: Floats) -> Floats:
    """Share of a row's idf, over its distinct tokens, that each other row has too, float32 [M, M]."""
    there = np.zeros((len(ids), len(idf)), np.float32)
    there[np.arange(len(ids))[:, None], ids] = 1.0
    weights = there * idf
    found: Floats = weights @ there.T / np.maximum(weights.sum(1, keepdims=True), 1e-6)
    return found


def _stream(text: Path, pieces: WordPieces) -> Ints:
    tokens = (
        [*(piece for word in pieces.words(each) for piece in pieces.pieces(word)), pieces.sep_id]
        for each in read_texts([text])
    )
    return np.fromiter((token for each in tokens for token in each), np.int64)


def _idf(stream: Ints, size: int) -> Floats:
    rows = stream[: len(stream) // LENGTH * LENGTH].reshape(-1, LENGTH)
    counts = np.bincount(np.concatenate([np.unique(row) for row in rows]), minlength=size)
    return np.log((len(rows) + 1) / (counts + 1)).astype(np.float32)


def _draw(shares: Floats, alike: Floats, out: Path) -> None:
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained")
    for axis, values, title in zip(
        axes, (shares, alike), ("attention", "common words (share of idf)"), strict=True
    ):
        shown = np.where(np.eye(len(values), dtype=bool), np.nan, values)
        figure.colorbar(axis.imshow(shown), ax=axis, shrink=0.8)
        axis.set(title=title, xlabel="sequence", ylabel="question")
    figure.savefig(out, dpi=100, metadata={"Software": None})
    plt.close(figure)
