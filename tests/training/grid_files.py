"""Grid files of tiny runs, and results files that were never run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from research.grid.grid import planned
from research.grid.results import append

MakeGrid = Callable[..., Path]
PLAIN = 'weighting.formula = "none"\n'
WARM = "optimizer.strength_warmup = 0.6\n"
BUDGET = """
[base.optimizer]
batch_size = 16
max_steps = 4
learning_rate = 1e-3
precision = "fp32"
[base.watch]
steps = 2
queries = 40
documents = 20
"""


def grid_maker(tmp_path: Path) -> MakeGrid:
    """Returns what writes a grid file in a folder of the test's."""

    def make(
        head: str = "seeds = 1",
        tail: str = "",
        base: str = "",
        variants: Mapping[str, str] = {"plain": PLAIN, "warm": WARM},
    ) -> Path:
        tables = "".join(f"[variants.{name}]\n{text}" for name, text in variants.items())
        base = f"[base]\ntowers.init_layers = [0, 1]\n{base}\n{BUDGET}"
        path = tmp_path / "grid.toml"
        path.write_text(f'baseline = "plain"\n{head}\n{base}{tables}{tail}', encoding="utf-8")
        return path

    return make


def result(value: float = 0.5, **changes: Any) -> dict[str, Any]:
    """A line of a results file."""
    measures = {"toy": {"RR@10": value, "RR@20": value, "nDCG@10": value}}
    row = {"variant": "x", "seed": 0, "config": "0" * 12, "data": {"train": "toy"}, "measures": measures}
    return {**row, "term_stats": {}, "curve": [[2, value - 0.1], [4, value]], "steps": 4, **changes}


def results_of(grid: Path, values: Mapping[tuple[str, int], float], **changes: Any) -> Path:
    """A results file that holds these runs of a grid, by variant and seed."""
    path = grid.with_name("results.jsonl")
    for item in planned(grid):
        name = (item.variant, item.config.seed)
        if name in values:
            append(path, result(values[name], variant=name[0], seed=name[1], config=item.key[1], **changes))
    return path
