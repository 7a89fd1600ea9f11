"""What a grid's results file becomes: shares of steps, intervals, tables of means and differences."""

import pytest

from glow.errors import ConfigError, MismatchError
from research.grid.grid import planned
from research.grid.picture import save_curves
from research.grid.report import grid_tables, interval, share_of_steps
from research.grid.results import append
from tests.training.grid_files import PLAIN, WARM, MakeGrid, result, results_of


def test_share_of_steps_by_hand() -> None:
    curve = [(10, 0.2), (20, 0.4), (30, 0.3), (40, 0.6)]
    assert share_of_steps(curve, 0.3, 40) == pytest.approx(15 / 40)  # half-way from 10 to 20
    assert share_of_steps(curve, 0.4, 40) == pytest.approx(20 / 40)
    assert share_of_steps(curve, 0.45, 40) == pytest.approx(35 / 40)  # first reached past the dip
    assert share_of_steps(curve, 0.1, 40) == pytest.approx(10 / 40)  # nothing is known before the first look
    assert share_of_steps(curve, 0.7, 40) is None
    assert share_of_steps([], 0.7, 40) is None


@pytest.mark.parametrize(
    ("differences", "quantile"),  # Student's t at 0.975, as tables give it
    [([1.0, 3.0], 12.706205), ([0.0, 1.0, 5.0], 4.302653), ([1.0, 2.0, 4.0, 4.0, 9.0], 2.776445)],
)
def test_the_interval_uses_students_quantile(differences: list[float], quantile: float) -> None:
    mean, half, p = interval(differences)
    n = len(differences)
    assert mean == pytest.approx(sum(differences) / n)
    error = (sum((value - mean) ** 2 for value in differences) / (n - 1) / n) ** 0.5
    assert half / error == pytest.approx(quantile, abs=1e-6)
    assert (p < 0.05) == (half < mean)


@pytest.mark.parametrize("differences", [[0.25], [0.1, 0.1, 0.1], [0.3 - 0.2, 0.4 - 0.3]])
def test_no_interval_without_a_spread(differences: list[float]) -> None:
    mean, half, p = interval(differences)
    assert mean == pytest.approx(differences[0])
    assert half != half
    assert p != p


def test_tables_hold_means_differences_and_shares(make_grid: MakeGrid) -> None:
    grid = make_grid("seeds = 3")
    values = {("plain", 0): 0.5, ("plain", 1): 0.6, ("warm", 0): 0.55, ("warm", 1): 0.75, ("warm", 2): 0.7}
    lines = grid_tables(grid, results_of(grid, values)).splitlines()
    assert lines[0] == "5 of 6 runs are done. The baseline is plain."
    assert "| plain | 2 | toy RR@10 | 0.5500 ± 0.0707 | | | |" in lines
    # Differences of the seeds that both have, +0.05 and +0.15: 0.1 ± 12.7062 · 0.05, t = 2, p = 0.295.
    assert "| warm | 3 | toy RR@10 | 0.6667 ± 0.1041 | +0.1000 | -0.5353 to +0.7353 | 0.295 |" in lines
    # Curves rise by 0.1 from step 2 to 4. Each seed has the aim of the baseline's same seed: warm passes .5 at step 3, and .6 before
    # its first look at step 2; the mean of the baseline's ends (.55) would be no aim of either.
    assert "| plain | 2 of 2 | 1.00 | 1.00 |" in lines
    assert "| warm | 2 of 2 | 0.62 | 1.00 |" in lines
    assert not any("idf from" in line for line in lines)


def test_a_variant_may_have_a_baseline_of_its_own(make_grid: MakeGrid) -> None:
    variants = {"plain": PLAIN, "cls": PLAIN + 'towers.pooling = "cls"\n', "warm": WARM}
    grid = make_grid('against.warm = "cls"', variants=variants)
    lines = grid_tables(grid, results_of(grid, {("plain", 0): 0.5, ("cls", 0): 0.25, ("warm", 0): 0.375}))
    assert "That of warm is cls." in lines
    assert "| warm | 1 | toy RR@10 | 0.3750 | +0.1250 | | |" in lines
    assert "| cls | 1 | toy RR@10 | 0.2500 | -0.2500 | | |" in lines
    with pytest.raises(ConfigError, match="names other, which are not its variants"):
        grid_tables(make_grid('against.warm = "other"'), grid)


def test_tables_of_a_grid_with_one_seed_have_no_intervals(make_grid: MakeGrid) -> None:
    grid = make_grid()
    lines = grid_tables(grid, results_of(grid, {("plain", 0): 0.5, ("warm", 0): 0.3})).splitlines()
    assert "| warm | 1 | toy nDCG@10 | 0.3000 | -0.2000 | | |" in lines
    assert "| warm | 0 of 1 | | |" in lines
    assert "nan" not in "\n".join(lines)


def test_tables_without_a_baseline_or_any_run(make_grid: MakeGrid) -> None:
    grid = make_grid()
    assert grid_tables(grid, grid.with_name("results.jsonl")).startswith("0 of 2 runs are done.")
    lines = grid_tables(grid, results_of(grid, {("warm", 0): 0.3})).splitlines()
    assert "| warm | 1 | toy RR@10 | 0.3000 | | | |" in lines
    assert "| warm | not measured | | |" in lines


def test_curves_of_different_lengths_are_compared_where_all_have_a_value(make_grid: MakeGrid) -> None:
    grid = make_grid("seeds = 2")
    out = results_of(grid, {("plain", 0): 0.5, ("plain", 1): 0.5, ("warm", 0): 0.6})
    item = next(item for item in planned(grid) if (item.variant, item.config.seed) == ("warm", 1))
    append(out, result(0.6, variant="warm", seed=1, config=item.key[1], curve=[[2, 0.2]], steps=2))
    assert "| warm | 1 of 2 | 0.50 | 1.00 |" in grid_tables(grid, out).splitlines()  # seed 1 ends at .2
    append(out, result(0.6, variant="warm", seed=1, config=item.key[1], curve=[[2, 0.7]], steps=2))
    assert "| warm | 2 of 2 | 0.50 | 1.00 |" in grid_tables(grid, out).splitlines()
    append(out, result(0.6, variant="warm", seed=1, config=item.key[1], curve=[]))
    assert "| warm | 1 of 1 | 0.50 | 1.00 |" in grid_tables(grid, out).splitlines()


def test_sources_of_idf_have_their_own_table(make_grid: MakeGrid) -> None:
    grid = make_grid("seeds = 3", '[term_stats]\nwarm = ["model"]\n')
    out = grid.with_name("results.jsonl")
    for item in planned(grid):
        seed, digest = item.key
        other = {"model": result(0.4 + 0.01 * seed)["measures"]} if item.variant == "warm" else {}
        append(out, result(0.5, variant=item.variant, seed=seed, config=digest, term_stats=other))
    lines = grid_tables(grid, out).splitlines()
    assert "| warm | corpus | toy | 0.5000 | 0.5000 | | | |" in lines
    # -0.09 ± 4.302653 · 0.01 / sqrt(3)
    assert "| warm | model | toy | 0.4100 | 0.4100 | -0.0900 | -0.1148 to -0.0652 | 0.004 |" in lines
    assert not any(line.startswith("| plain | corpus") for line in lines)


def test_tables_of_runs_on_different_data_are_refused(make_grid: MakeGrid) -> None:
    grid = make_grid()
    results_of(grid, {("plain", 0): 0.5})
    out = results_of(grid, {("warm", 0): 0.5}, data={"train": "other"})
    with pytest.raises(MismatchError, match="which differ"):
        grid_tables(grid, out)


def test_an_old_line_does_not_join_runs_on_different_files(make_grid: MakeGrid) -> None:
    grid = make_grid("seeds = 2")
    results_of(grid, {("plain", 0): 0.5})
    results_of(grid, {("warm", 0): 0.5}, data={"train": "toy", "files": {"train": "a"}})
    out = results_of(grid, {("warm", 1): 0.5}, data={"train": "toy", "files": {"train": "a"}})
    assert grid_tables(grid, out).startswith("3 of 4 runs are done.")
    out = results_of(grid, {("plain", 1): 0.5}, data={"train": "toy", "files": {"train": "b"}})
    with pytest.raises(MismatchError, match="which differ"):
        grid_tables(grid, out)


def test_curves_are_drawn_and_a_variant_without_one_is_named(make_grid: MakeGrid) -> None:
    grid = make_grid("seeds = 2")
    out = results_of(grid, {("plain", 0): 0.5, ("plain", 1): 0.5, ("warm", 0): 0.6})
    picture = grid.with_name("curves.png")
    save_curves(grid, out, ["plain", "warm"], picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="no curve of cold"):
        save_curves(grid, out, ["plain", "cold"], picture)
