"""Plots of a run: loss and weighted-cosine range per step (GLOW Figure 4), and development measures over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["draw"]

Rows = Sequence[Mapping[str, Any]]


def draw(rows: Rows, folder: Path) -> None:
    """Writes `loss.png`, and `cosine.png` and `dev.png` if their figures exist; nothing without rows.

    Args:
        rows: lines of a metrics file.
        folder: directory of the plots.
    """
    if not rows:
        return
    steps = [row["step"] for row in rows]
    figure, axes = _axes("training loss")
    axes.plot(steps, [row["loss"] for row in rows], color="tab:green", linewidth=1)
    figure.savefig(folder / "loss.png")
    if "positive" in rows[0]:  # training of one tower alone compares nothing
        _draw_cosines(rows, folder)
    watched = [row for row in rows if "dev" in row]
    if watched:
        figure, axes = _axes("development set")
        for name in watched[0]["dev"]:
            axes.plot([row["step"] for row in watched], [row["dev"][name] for row in watched], label=name)
        axes.legend()
        figure.savefig(folder / "dev.png")


def _draw_cosines(rows: Rows, folder: Path) -> None:
    steps = [row["step"] for row in rows]
    low, high = [row["negative"] for row in rows], [row["positive"] for row in rows]
    figure, axes = _axes("weighted cosine a·cos + c")
    axes.plot(steps, high, color="tab:green", linewidth=1, label="pairs")
    axes.plot(steps, low, color="tab:orange", linewidth=1, label="nearest others in the batch")
    axes.fill_between(steps, low, high, color="tab:green", alpha=0.15)
    axes.legend()
    figure.savefig(folder / "cosine.png")


def _axes(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6, 3.5), dpi=110, layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel("step")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    return figure, axes
