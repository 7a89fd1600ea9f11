"""Tables of the study: means over seeds, and paired differences with 95 % intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["difference", "tables"]

CONTRASTS = """l1-l0 l2-l0 l2-l1 l0:longer-l0 l1:longer-l1 l2:longer-l2 late0-l0 late1-l1 late2-l2 late2-l0 late2-l0:longer both1-late1
both2-late2 both1-l1 both2-l2 e128-l1 e64-l1 e32-l1 e32-e64 e32:judged-e32 e32:chance-e32 e64:16-e64 e64:8-e64 e64:4-e64""".split()


def tables(results: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown: every arm, then every contrast whose arms have a common seed."""
    arms: dict[str, dict[int, dict[str, Any]]] = {}
    for each in sorted(results, key=lambda each: each["seed"]):
        arms.setdefault(each["arm"], {})[each["seed"]] = each
    lines = ["|arm|steps|RR@10|nDCG@10|of each seed|loss, by tenths|", "|---|---|---|---|---|---|"]
    for name, runs in arms.items():
        ndcg, rr = ([run["means"][each] for run in runs.values()] for each in ("nDCG@10", "RR@10"))
        losses = np.mean([run.get("losses", []) for run in runs.values()], 0)
        steps = next(iter(runs.values())).get("steps", 0)
        cells = f"{np.mean(rr):.3f}|{np.mean(ndcg):.3f}|{' '.join(f'{mean:.3f}' for mean in ndcg)}"
        lines.append(f"|{name}|{steps}|{cells}|{' '.join(f'{loss:.2f}' for loss in losses)}|")
    lines += ["", "|contrast|seeds|nDCG@10|", "|---|---|---|"]
    for contrast in CONTRASTS:
        pair = [arms.get(name, {}) for name in contrast.split("-")]
        if seeds := sorted(pair[0].keys() & pair[1].keys()):
            one, other = (np.array([runs[seed]["ndcg"] for seed in seeds]) / 1e4 for runs in pair)
            mean, low, high = difference(one, other)
            lines.append(f"|{contrast}|{len(seeds)}|{mean:+.3f} ({low:+.3f} to {high:+.3f})|")
    return lines


def difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of `one` less `other`, float64 [seeds, queries], and its interval: both axes are drawn again 10,000 times."""
    random, less = np.random.default_rng(0), one - other
    seeds, queries = less.shape
    means = [
        less[random.integers(seeds, size=seeds)].mean(0)[random.integers(queries, size=queries)].mean()
        for _ in range(10_000)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(less.mean()), float(low), float(high)
