"""`python -m research.grid`: `grid` runs variants × seeds, `grid-report` writes tables, `grid-curves` plots curves."""

import re
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from glow.commands import package_app, reporting
from glow.errors import ConfigError
from glow.nn import minilm_folder
from research.grid.grid import GridRun, planned, run
from research.grid.picture import save_curves
from research.grid.report import grid_tables
from research.grid.results import finished

__all__ = ["grid_command", "grid_curves_command", "grid_report_command"]

GRID, RESULTS = Path("research/grid/papers.toml"), Path("docs/papers/grid.jsonl")
GridOption = Annotated[Path, typer.Option(help="TOML file of variants and budget.")]


def grid_command(
    data: Annotated[Path, typer.Option(help="Data folder whose split `train` is trained on.")],
    dev: Annotated[
        list[Path],
        typer.Option(help="Data folder whose split `dev` is measured; the first is watched while training."),
    ],
    grid: GridOption = GRID,
    out: Annotated[Path, typer.Option(help="JSON lines of results, appended to.")] = RESULTS,
    init: Annotated[Path | None, typer.Option(help="BERT-layout folder; default: all-MiniLM-L6-v2.")] = None,
    negatives: Annotated[
        Path | None, typer.Option(help="Hard negatives that `glow mine` made of --data.")
    ] = None,
    shard: Annotated[str, typer.Option(help="I/N: this process does every N-th run, from the I-th.")] = "0/1",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 takes all cores.")] = 0,
) -> None:
    """Run variants × seeds under one budget; what the results file holds already is not done again."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    if threads:
        torch.set_num_threads(threads)
    with reporting():
        first, count = _shard(shard)
        runs, done = planned(grid)[first::count], finished(out)
        left = sum(item.key not in done for item in runs)
        console.print(f"{left} of {len(runs)} runs are left")

        def tell(item: GridRun) -> None:
            console.print(f"{item.variant}, seed {item.config.seed}")

        for row in run(grid, data, dev, init or minilm_folder(), out, (first, count), tell, negatives):
            shown = ", ".join(f"{name} RR@10 {found['RR@10']:.4f}" for name, found in row["measures"].items())
            console.print(f"  {shown} ({row['seconds']:.0f} s)")


def grid_report_command(
    grid: GridOption = GRID,
    out: Annotated[Path, typer.Option(help="JSON lines of results.")] = RESULTS,
) -> None:
    """Write the grid's tables as Markdown to standard output."""
    with reporting():
        sys.stdout.write(grid_tables(grid, out))


def grid_curves_command(
    picture: Annotated[Path, typer.Option(help="PNG file to write.")],
    variant: Annotated[list[str], typer.Option(help="Variant to draw; given several times, in that order.")],
    grid: GridOption = GRID,
    out: Annotated[Path, typer.Option(help="JSON lines of results.")] = RESULTS,
) -> None:
    """Draw dev RR@10 over steps, the variants in one picture."""
    with reporting():
        save_curves(grid, out, variant, picture)


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/([1-9]\d*)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise ConfigError(f"--shard {text!r} is not I/N with 0 <= I < N, such as 0/2")
    return int(found[1]), int(found[2])


app = package_app(
    {"grid": grid_command, "grid-report": grid_report_command, "grid-curves": grid_curves_command},
    "Variants × seeds of a model.",
)

if __name__ == "__main__":
    app()
