"""A text whose answers are planted: can Cross-Thought's attention learn to choose a sequence?

A sequence is a value among repetitions of a key. Each sample holds every key twice, with the same random value, so a masked value
can be told from the twin alone. Written before the runs: the twin leads the other sequences (by chance 1/(M - 1) of the time) if
special tokens carry their sequence's words (`bag`); without that, attention stays uniform, as on real text.

    M   sequences of a sample       L   tokens of a sequence, of which [SEP] is the last
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glow.nn import CrossThought, Pretrainer, SentenceConfig
from glow.text import WordPieces
from glow.training import Given, train
from glow.training.pretraining import PretrainConfig, load_pretrained, save_pretrained
from research.pretraining.variants import SMALL

__all__ = ["chosen", "planted", "probe", "vocabulary"]

SEQUENCES, LENGTH, VALUE_AT = 8, 8, 3
WORDS = 60
"""Number of keys, and of values."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SAMPLES, ASKED = 20_000, 200
Ints = NDArray[np.int64]


def planted(pieces: WordPieces, count: int, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Samples of L - 1 words a sequence, int64 [M, L - 1], and the number of each sequence's twin, int64 [M]."""
    random = np.random.default_rng(seed)
    keys, values = np.arange(len(SPECIAL), len(SPECIAL) + 2 * WORDS).reshape(2, WORDS)
    for _ in range(count):
        pairs = SEQUENCES // 2
        rows = np.empty((SEQUENCES, LENGTH - 1), np.int64)
        rows[:] = np.repeat(random.choice(keys, pairs, replace=False), 2)[:, None]
        rows[:, VALUE_AT] = np.repeat(random.choice(values, pairs), 2)
        order = random.permutation(SEQUENCES)
        twins = np.arange(SEQUENCES) ^ 1
        yield rows[order], np.argsort(order)[twins[order]]


def vocabulary(folder: Path) -> WordPieces:
    """Writes `vocab.txt` of the planted words, and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [
        f"{kind}{chr(97 + n // 26)}{chr(97 + n % 26)}" for kind in ("key", "value") for n in range(WORDS)
    ]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n", encoding="utf-8")
    return WordPieces(folder / "vocab.txt")


def probe(out: Path, steps: int, seed: int, **changes: Any) -> dict[str, Any]:
    """Pre-trains on planted text, and measures what attention chooses in samples of another seed.

    Args:
        out: checkpoint to write; text and vocabulary are beside it.
        steps: of 2,048 tokens.
        seed: of text and model.
        changes: of the objective, such as `bag` or `specials`.
    """
    init = out.with_name(f"{out.name}.init")
    pieces = vocabulary(init.with_name(f"{init.name}.words"))
    shape = SentenceConfig(vocabulary=pieces.size, hidden=SMALL["hidden"], heads=SMALL["heads"], layers=1)
    save_pretrained(init, Pretrainer("mlm", shape), pieces, {})
    text = out.with_name(f"{out.name}.txt")
    words = pieces.vocabulary.read_text(encoding="utf-8").splitlines()
    rows = (row for sample, _ in planted(pieces, SAMPLES, seed) for row in sample.tolist())
    lines = (" ".join(words[token] for token in row) for row in rows)
    text.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    config = PretrainConfig.model_validate(
        {
            "name": "probe",
            "seed": seed,
            "checkpoint_steps": 10_000,
            "pretraining": {
                "sequences": SEQUENCES,
                "length": LENGTH,
                "specials": 1,
                "masked": 0.3,
                **changes,
            },
            "encoder": SMALL,
            "optimizer": {"batch_tokens": 2048, "steps": steps, "learning_rate": 1e-3, "precision": "fp32"},
        }
    )
    made = train(config, Given(out=out, init=init, corpora=[text], device="cpu"))
    crossed = load_pretrained(out).model.crossed
    assert crossed is not None  # noqa: S101 - the objective is cross-thought
    return {"loss": made["final_loss"], **chosen(crossed, pieces, seed + 1_000)}


def chosen(model: CrossThought, pieces: WordPieces, seed: int) -> dict[str, float]:
    """What sequences with a masked value attend to.

    Returns:
        `twin`: the twin's share of attention (uniform: 1/M); `first`: how often it leads the other sequences (by chance
        1/(M - 1)); `entropy` relative to uniform attention.
    """
    shares, first, entropies = [], [], []
    for rows, twins in planted(pieces, ASKED, seed):
        ids = torch.from_numpy(np.concatenate([rows, np.full((SEQUENCES, 1), pieces.sep_id)], 1))
        asking = ids.clone()
        asking[:, VALUE_AT] = pieces.mask_id
        with torch.no_grad():
            there = torch.ones_like(ids, dtype=torch.bool)
            logits = model.logits(model.embed(asking, there), model.embed(ids, there))
            attention = logits.softmax(-1).mean(0).numpy()  # [M, M]
        every = np.arange(SEQUENCES)
        shares.append(attention[every, twins].mean())
        entropies.append(-(attention * np.log(attention)).sum(1).mean() / np.log(SEQUENCES))
        others = attention.copy()
        others[every, every] = -1.0
        first.append((others.argmax(1) == twins).mean())
    return {
        "twin": round(float(np.mean(shares)), 4),
        "first": round(float(np.mean(first)), 4),
        "entropy": round(float(np.mean(entropies)), 4),
    }
