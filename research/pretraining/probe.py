"""A text whose answers are planted: can Cross-Thought's attention learn to choose a sequence?

Written before the runs. A sequence is a key (three times), a value and noise. Each sample holds every key twice, with the same
random value, so a masked value can be told from the twin alone. Hypothesis: the twin leads the other sequences (by chance
1/(M - 1) of the time) and entropy falls. If so, the model can choose, and its uniform attention on real text is the text's.

    M   sequences of a sample       L   tokens of a sequence, of which [SEP] is the last
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glow.nn import CrossThought
from glow.text import WordPieces
from glow.training import Given, train
from glow.training.pretraining import PretrainConfig, load_pretrained
from research.pretraining.variants import SMALL

__all__ = ["chosen", "planted", "probe"]

SEQUENCES, LENGTH, KEY_TIMES = 8, 8, 3
WORDS = 400
"""Number of keys, of values, and of words of noise."""
SAMPLES, ASKED = 20_000, 200
VALUE_AT = KEY_TIMES
Ints = NDArray[np.int64]


def planted(pieces: WordPieces, count: int, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Samples of L - 1 words a sequence, int64 [M, L - 1], and the number of each sequence's twin, int64 [M]."""
    random = np.random.default_rng(seed)
    whole = [token for token, word in enumerate(_vocabulary(pieces)) if word.isascii() and word.isalpha()]
    words = np.array(whole[-3 * WORDS :])
    keys, values, noise = words.reshape(3, WORDS)
    for _ in range(count):
        pairs = SEQUENCES // 2
        rows = np.empty((SEQUENCES, LENGTH - 1), np.int64)
        rows[:, :KEY_TIMES] = np.repeat(random.choice(keys, pairs, replace=False), 2)[:, None]
        rows[:, VALUE_AT] = np.repeat(random.choice(values, pairs), 2)
        rows[:, VALUE_AT + 1 :] = random.choice(noise, (SEQUENCES, LENGTH - 2 - KEY_TIMES))
        order = random.permutation(SEQUENCES)
        twins = np.arange(SEQUENCES) ^ 1
        yield rows[order], np.argsort(order)[twins[order]]


def probe(out: Path, init: Path, steps: int, seed: int, **changes: Any) -> dict[str, Any]:
    """Pre-trains on planted text, and measures what attention chooses in samples of another seed.

    Args:
        out: checkpoint to write; the text is beside it.
        init: gives the vocabulary.
        steps: of 4,096 tokens.
        seed: of text and model.
        changes: of the objective, such as `masked` or `specials`.
    """
    pieces = WordPieces(init / "vocab.txt")
    out.parent.mkdir(parents=True, exist_ok=True)
    text = out.with_name(f"{out.name}.txt")
    words = _vocabulary(pieces)
    rows = (row for sample, _ in planted(pieces, SAMPLES, seed) for row in sample.tolist())
    lines = (" ".join(words[token] for token in row) for row in rows)
    text.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    config = PretrainConfig.model_validate(
        {
            "name": "probe",
            "seed": seed,
            "checkpoint_steps": 10_000,
            "pretraining": {"sequences": SEQUENCES, "length": LENGTH, "specials": 1, **changes},
            "encoder": SMALL,
            "optimizer": {"batch_tokens": 4096, "steps": steps, "learning_rate": 1e-3, "precision": "fp32"},
        }
    )
    made = train(config, Given(out=out, init=init, corpora=[text], device="cpu"))
    crossed = load_pretrained(out).model.crossed
    assert crossed is not None  # noqa: S101 - the objective is cross-thought
    return {"loss": made["final_loss"], **chosen(crossed, pieces, seed + 1_000)}


def _vocabulary(pieces: WordPieces) -> list[str]:
    return pieces.vocabulary.read_text(encoding="utf-8").splitlines()


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
