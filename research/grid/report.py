"""Tables of a grid: every variant against the baseline over seeds, and the steps it needs to reach the baseline."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glow.errors import MismatchError
from glow.evaluation import t_tail
from research.grid.grid import GridConfig, planned
from research.grid.results import finished, same_data

__all__ = ["grid_tables", "interval", "share_of_steps"]

Row = Mapping[str, Any]
Rows = Mapping[int, Row]
"""Seed -> result."""
MEASURES_HEAD = [
    "| variant | seeds | measure | mean ± sd | − baseline | 95 % interval | p |",
    "|---|---|---|---|---|---|---|",
]
SHARE_HEAD = [
    "| variant | seeds that reach the baseline's final dev RR@10 | at this share of its steps | the baseline itself |",
    "|---|---|---|---|",
]
STATS_HEAD = [
    "| variant | idf from | task | RR@10 | nDCG@10 | − corpus (nDCG@10) | 95 % interval | p |",
    "|---|---|---|---|---|---|---|---|",
]


def grid_tables(grid: Path, results: Path) -> str:
    """Markdown: measures and their differences to the baseline, convergence, and sources of idf.

    Raises:
        ConfigError, InputError: as `planned` and `finished`.
        MismatchError: if the runs were measured on different data.
    """
    config, runs, done = GridConfig.load_toml(grid), planned(grid), finished(results)
    by_variant: dict[str, dict[int, Row]] = defaultdict(dict)
    for item in runs:
        if item.key in done:
            by_variant[item.variant][item.config.seed] = done[item.key]
    found = [row for rows in by_variant.values() for row in rows.values()]
    datas = [row["data"] for row in found]
    # A run with file hashes: without them, runs on different files would look equal.
    first = next((data for data in datas if "files" in data), datas[0] if datas else {})
    if other := [data for data in datas if not same_data(data, first)]:
        raise MismatchError(f"{results.name} holds runs on {first} and on {other[0]}, which differ")
    baselines = {name: by_variant.get(config.against.get(name, config.baseline), {}) for name in by_variant}
    lines = [f"{len(found)} of {len(runs)} runs are done. The baseline is {config.baseline}."]
    lines += [f"That of {variant} is {name}." for variant, name in config.against.items()]
    lines += ["", *MEASURES_HEAD]
    for variant, rows in by_variant.items():
        lines += _compare(variant, rows, baselines[variant])
    lines += ["", *SHARE_HEAD]
    lines += [f"| {variant} | {_share(rows, baselines[variant])}" for variant, rows in by_variant.items()]
    if stats := [line for variant, rows in by_variant.items() for line in _stats(variant, rows)]:
        lines += ["", *STATS_HEAD, *stats]
    return "\n".join(lines) + "\n"


def interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Mean, half-width of its 95 % t-interval, and the paired t-test's two-sided p.

    The last two are NaN for a single difference, and if all are equal.
    """
    values = np.array(differences)
    mean, n = float(values.mean()), len(values)
    if n < 2 or np.ptp(values) < 1e-9:
        return mean, float("nan"), float("nan")
    error = float(values.std(ddof=1)) / n**0.5
    low, high = 0.0, 1e4
    for _ in range(200):  # bisection of the t that leaves 5 % outside
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, n - 1) > 0.05 else (low, middle)
    return mean, low * error, t_tail(mean / error, n - 1)


def share_of_steps(curve: Sequence[tuple[int, float]], aim: float, steps: float) -> float | None:
    """Fraction of `steps` after which a curve first reaches `aim`; None if never.

    Interpolates linearly between measurements; if the first one reaches it, its own steps count.
    """
    before: tuple[int, float] | None = None
    for step, value in curve:
        if value >= aim:
            if before is None:
                return step / steps
            part = (aim - before[1]) / (value - before[1])
            return (before[0] + part * (step - before[0])) / steps
        before = (step, value)
    return None


def _compare(variant: str, rows: Rows, baseline: Rows) -> list[str]:
    shared = sorted(rows.keys() & baseline.keys()) if rows is not baseline else []
    lines = []
    for task, measures in next(iter(rows.values()))["measures"].items():
        for name in measures:
            values = [row["measures"][task][name] for row in rows.values()]
            spread = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
            pairs = [(rows[seed]["measures"][task], baseline[seed]["measures"][task]) for seed in shared]
            cells = _cells([own[name] - base[name] for own, base in pairs])
            mean = float(np.mean(values))
            lines.append(f"| {variant} | {len(values)} | {task} {name} | {mean:.4f}{spread} | {cells}")
    return lines


def _cells(differences: Sequence[float]) -> str:
    """Mean difference, interval and p, if defined."""
    if not differences:
        return "| | |"
    mean, half, p = interval(differences)
    if np.isnan(half):
        return f"{mean:+.4f} | | |"
    return f"{mean:+.4f} | {mean - half:+.4f} to {mean + half:+.4f} | {p:.3f} |"


def _share(rows: Rows, baseline: Rows) -> str:
    """Seeds in which a variant reaches the final value of the baseline with the same seed, and the steps of both.

    The baseline's mean would not be a fair aim for one seed: a lucky one passes it early with any change.
    """
    shared = sorted(
        seed for seed in rows.keys() & baseline.keys() if baseline[seed]["curve"] and rows[seed]["curve"]
    )
    if not shared:
        return "not measured | | |"
    pairs = []
    for seed in shared:
        steps, aim = baseline[seed]["curve"][-1]
        own, base = (share_of_steps(curves[seed]["curve"], aim, steps) for curves in (rows, baseline))
        if own is not None and base is not None:
            pairs.append((own, base))
    if not pairs:
        return f"0 of {len(shared)} | | |"
    own, base = np.mean(np.array(pairs), axis=0).tolist()
    return f"{len(pairs)} of {len(shared)} | {own:.2f} | {base:.2f} |"


def _stats(variant: str, rows: Rows) -> list[str]:
    """A line for each task and source of idf; none if a variant has a single source."""
    first = next(iter(rows.values()))
    lines = []
    for task in first["measures"]:
        own = [row["measures"][task] for row in rows.values()]
        for source in ["corpus", *first["term_stats"]] if first["term_stats"] else []:
            found = own if source == "corpus" else [row["term_stats"][source][task] for row in rows.values()]
            means = [float(np.mean([values[name] for values in found])) for name in ("RR@10", "nDCG@10")]
            pairs = [] if source == "corpus" else list(zip(found, own, strict=True))
            cells = _cells([a["nDCG@10"] - b["nDCG@10"] for a, b in pairs])
            lines.append(f"| {variant} | {source} | {task} | {means[0]:.4f} | {means[1]:.4f} | {cells}")
    return lines
