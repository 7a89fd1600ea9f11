"""Results of `research.pretraining` as Markdown: means over seeds, and paired differences to `mlm-64`."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.stats import t

__all__ = ["paired", "report"]

BASELINE = "mlm-64"
COLUMNS = (
    ("unsupervised", "mean"), ("unsupervised", "cls"), ("unsupervised", "specials"), ("unsupervised", "logits"),
    ("unsupervised", "shares"), ("tuned", "mean"), ("tuned", "cls"), ("tuned", "logits"), ("tuned", "shares"),
)  # fmt: skip


def paired(first: dict[int, float], second: dict[int, float]) -> tuple[float, float, float]:
    """Mean difference over common seeds, and its 95 % interval by Student's t; NaN bounds for a single seed."""
    seeds = sorted(first.keys() & second.keys())
    differences = [first[seed] - second[seed] for seed in seeds]
    if len(seeds) < 2:
        return float(np.mean(differences)), float("nan"), float("nan")
    mean, error = float(np.mean(differences)), float(np.std(differences, ddof=1)) / len(seeds) ** 0.5
    half = float(t.ppf(0.975, len(seeds) - 1)) * error
    return mean, mean - half, mean + half


def report(
    results: Annotated[Path, typer.Option()],
    measure: Annotated[str, typer.Option()] = "RR@10",
) -> None:
    """Prints a table for every data directory and start."""
    groups: dict[tuple[str, str, int], dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    for line in results.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        groups[row["data"], row["start"], row["tokens"]][row["variant"]][row["seed"]] = row
    for (data, start, tokens), variants in groups.items():
        names = [f"{'tuned ' if part == 'tuned' else ''}{way}" for part, way in COLUMNS]
        lines = [
            f"\n{data}, from {start}, {tokens:,} pieces, {measure}\n",
            f"| variant | seeds | {' | '.join(names)} |",
        ]
        lines.append("|---" * (len(names) + 2) + "|")
        for variant, rows in variants.items():
            cells = [_cell(rows, variants.get(BASELINE, {}), part, way, measure) for part, way in COLUMNS]
            lines.append(f"| {variant} | {len(rows)} | {' | '.join(cells)} |")
        sys.stdout.write("\n".join(lines) + "\n")


def _cell(rows: dict[int, Any], base: dict[int, Any], part: str, way: str, measure: str) -> str:
    values = _values(rows, part, way, measure)
    if not values:
        return "–"
    shown = f"{np.mean(list(values.values())):.3f}"
    beside = _values(base, part, "mean", measure)
    if beside and base is not rows and len(values.keys() & beside.keys()) > 1:
        _, low, high = paired(values, beside)
        shown += f" ({low:+.3f} to {high:+.3f})"
    return shown


def _values(rows: dict[int, Any], part: str, way: str, measure: str) -> dict[int, float]:
    return {seed: row[part][way][measure] for seed, row in rows.items() if way in row.get(part, {})}
