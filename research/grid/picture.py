"""Plots dev RR@10 over steps of several variants, mean and range over seeds, like GLOW's Figure 4."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from glow.errors import ConfigError
from research.grid.grid import planned
from research.grid.results import finished

__all__ = ["save_curves"]

STYLES = ("-", "--", "-.", ":")
SIZE_INCHES = (6.4, 4.0)


def save_curves(grid: Path, results: Path, variants: Sequence[str], out: Path) -> None:
    """Draws the curves of a grid's runs.

    Args:
        grid, results: the grid and its results.
        variants: names, in legend order.
        out: PNG file to write.

    Raises:
        ConfigError: if a variant has no run with a curve.
        InputError: as `finished`.
    """
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    done = finished(results)
    figure, axes = plt.subplots(figsize=SIZE_INCHES, layout="constrained")
    for number, variant in enumerate(variants):
        rows = [done[item.key] for item in planned(grid) if item.variant == variant and item.key in done]
        curves = [dict(row["curve"]) for row in rows if row["curve"]]
        if not curves:
            raise ConfigError(f"{results.name} holds no curve of {variant}, a variant of {grid}")
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        values = np.array([[curve[step] for step in steps] for curve in curves])
        (line,) = axes.plot(
            steps, values.mean(axis=0), STYLES[number % len(STYLES)], marker="o", label=variant
        )
        axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=line.get_color(), alpha=0.15)
    axes.set_xlabel("steps")
    axes.set_ylabel("dev RR@10 (watched part)")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=120, metadata={"Software": None})
    plt.close(figure)
