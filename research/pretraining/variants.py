"""The compared variants, each a change to one small configuration."""

from typing import Any

from glow.training.pretraining import PretrainConfig

__all__ = ["VARIANTS", "config_of"]

VARIANTS: dict[str, dict[str, Any]] = {
    "cross-thought-5": {"kind": "cross-thought", "specials": 5},
    "cross-thought-3": {"kind": "cross-thought", "specials": 3},
    "cross-thought-1": {"kind": "cross-thought", "specials": 1},
    "cross-thought-1-512": {"kind": "cross-thought", "specials": 1, "length": 512, "sequences": 4},
    "cross-thought-5-bag": {"kind": "cross-thought", "specials": 5, "bag": 1.0},
    "cross-thought-1-bag": {"kind": "cross-thought", "specials": 1, "bag": 1.0},
    "cross-thought-5-rate": {"kind": "cross-thought", "specials": 5, "rate": 4.0},
    "cross-thought-5-page": {"kind": "cross-thought", "specials": 5, "sequences": 8},
    "mlm-64": {"kind": "mlm", "specials": 1},
    "mlm-512": {"kind": "mlm", "specials": 1, "length": 512},
    "retro": {"kind": "retro", "specials": 1, "masked": 0.3},
    "crops": {"kind": "crops", "specials": 1},
    "crops-128": {"kind": "crops", "specials": 1, "length": 128},
}
"""Variants by name; `rate` multiplies the learning rate. `none` is the same encoder without pre-training."""
BATCH_TOKENS = 4096
SMALL: dict[str, Any] = {
    "init": "none",
    "init_layers": [0, 1, 2],
    "hidden": 128,
    "heads": 4,
    "positions": 544,
    "dropout": 0.0,
}
"""Random start: three layers of 128."""
MINILM = {"init": "layers", "init_layers": [0, 4, 5], "dropout": 0.1}
RATES = {"chance": 1e-3, "minilm": 1e-4}


def config_of(variant: str, start: str, seed: int, tokens: int) -> PretrainConfig:
    """The configuration of a variant over about this number of tokens.

    Args:
        variant: a name of `VARIANTS`, or `none`.
        start: `chance` or `minilm`.
        seed: seed of every choice.
        tokens: total number of tokens, equal for every variant.
    """
    text = dict({"kind": "mlm", "specials": 1} if variant == "none" else VARIANTS[variant])
    rate = RATES[start] * text.pop("rate", 1.0)
    if start == "minilm" and text.get("length") == 512:
        text = {**text, "length": 504}  # its position table has 512 rows
    return PretrainConfig.model_validate(
        {
            "name": f"{variant}-{start}",
            "seed": seed,
            "checkpoint_steps": 10_000,
            "pretraining": {"sequences": 32, **text},
            "encoder": SMALL if start == "chance" else MINILM,
            "optimizer": {
                "batch_tokens": BATCH_TOKENS,
                "steps": max(1, tokens // BATCH_TOKENS),
                "learning_rate": rate,
            },
        }
    )
