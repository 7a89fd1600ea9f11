"""A grid of tiny runs: what is done once, by whom, under which budget; its results file, tables and commands."""

import json
import multiprocessing
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glow.errors import ConfigError, InputError, MismatchError
from glow.training.__main__ import app
from glow.training.grid import planned, run
from glow.training.grid_report import grid_tables, interval, share_of_steps
from glow.training.grid_results import append, finished, same_data

MakeGrid = Callable[..., Path]
PLAIN = '[weighting]\nformula = "none"\n[towers]\ninit_layers = [0, 1]\n'
WARM = "[towers]\ninit_layers = [0, 1]\n[optimiser]\nstrength_warmup = 0.6\nlearning_rate = 0.5\nbatch_size = 7\n"
BUDGET = """
[optimiser]
batch_size = 16
max_steps = 4
learning_rate = 1e-3
precision = "fp32"
[watch]
steps = 2
queries = 40
documents = 20
"""


@pytest.fixture
def make_grid(tmp_path: Path) -> MakeGrid:
    """Makes a grid file beside its two variants."""

    def make(
        head: str = "seeds = 1", tail: str = "", variants: Mapping[str, str] = {"plain": PLAIN, "warm": WARM}
    ) -> Path:
        for name, text in variants.items():
            (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\n{text}', encoding="utf-8")
        names = json.dumps([f"{name}.toml" for name in variants])
        path = tmp_path / "grid.toml"
        path.write_text(f'variants = {names}\nbaseline = "plain"\n{head}\n{BUDGET}{tail}', encoding="utf-8")
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


def test_a_run_appends_one_line_and_is_not_done_again(
    make_grid: MakeGrid, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    grid, out = make_grid(tail='[term_stats]\nwarm = ["model"]\n'), tmp_path / "new" / "results.jsonl"
    inputs = (grid, collection_folder, [collection_folder], bert_folder, out)
    first = next(run(*inputs))
    assert [json.loads(line) for line in out.read_text().splitlines()] == [json.loads(json.dumps(first))]
    told: list[str] = []
    (second,) = run(*inputs, on_run=lambda item: told.append(item.variant))
    assert told == [second["variant"]] == ["warm"]
    assert len(out.read_text().splitlines()) == 2
    assert not list(run(*inputs))
    assert (first["steps"], first["pairs"], [step for step, _ in first["curve"]]) == (4, 64, [2, 4])
    assert set(first["measures"]["toy"]) == {"RR@10", "RR@20", "nDCG@10"}
    assert 0.0 < first["measures"]["toy"]["RR@10"] <= first["measures"]["toy"]["RR@20"] <= 1.0
    assert first["term_stats"] == {}
    # The measured documents are those of training, so both tables of terms are the same but for the queries.
    assert second["term_stats"]["model"]["toy"] == pytest.approx(second["measures"]["toy"], abs=0.05)
    assert list(first["data"]["dev"].items()) == [("toy", 0)]


def test_results_on_other_data_are_refused(
    make_grid: MakeGrid, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    grid = make_grid()
    out = results_of(grid, {("plain", 0): 0.5})
    with pytest.raises(MismatchError, match="choose another --out"):
        next(run(grid, collection_folder, [collection_folder], bert_folder, out))
    with pytest.raises(ConfigError, match="share a name"):
        next(run(grid, collection_folder, [collection_folder] * 2, bert_folder, out))
    grid = make_grid(tail="[documents]\nelsewhere = 3\n")
    with pytest.raises(ConfigError, match="elsewhere, which is no --dev folder"):
        next(run(grid, collection_folder, [collection_folder], bert_folder, out))
    with pytest.raises(ConfigError, match="cannot read"):
        next(run(make_grid(), collection_folder, [collection_folder], tmp_path / "nowhere", out))


def test_results_on_files_that_changed_are_refused(
    make_grid: MakeGrid,
    collection_folder: Path,
    bert_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a run computes does not matter here; its name and configuration are those of the plan."""
    monkeypatch.setattr(
        "glow.training.grid._result",
        lambda item, *rest: result(variant=item.variant, seed=item.key[0], config=item.key[1]),
    )
    data, out = tmp_path / "toy", tmp_path / "results.jsonl"
    shutil.copytree(collection_folder, data)
    call = (make_grid(), data, [data], bert_folder, out)
    first = next(run(*call))
    with (data / "qrels" / "dev.tsv").open("a", encoding="utf-8") as file:
        file.write("nobody\tnothing\t1\n")
    with pytest.raises(MismatchError, match="choose another --out"):
        next(run(*call))
    # A line of before files were hashed goes by names.
    old = {name: value for name, value in first["data"].items() if name != "files"}
    out.write_text(json.dumps(first | {"data": old}) + "\n", encoding="utf-8")
    assert len(list(run(*call))) == 1
    assert grid_tables(call[0], out).startswith("2 of 2 runs are done.")
    (data / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"cannot read .*queries\.jsonl"):
        next(run(*call))


def test_the_shipped_results_go_by_names_and_initial_weights() -> None:
    rows = finished(Path(__file__).parents[2] / "docs" / "results" / "grid.jsonl").values()
    data = next(iter(rows))["data"]
    assert all(same_data(row["data"], data | {"files": {"train": "x"}}) for row in rows)
    assert not any(same_data(row["data"], data | {"init": "x"}) for row in rows)


def test_shards_do_every_run_exactly_once(
    make_grid: MakeGrid,
    collection_folder: Path,
    bert_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a run computes does not matter here and is left out."""
    monkeypatch.setattr("glow.training.grid._result", lambda item, *rest: result(seed=item.config.seed))
    grid = make_grid("seeds = 3\n[more_seeds]\nwarm = 4")
    done = []
    for shard in range(3):
        out = tmp_path / f"{shard}.jsonl"
        told = run(
            grid,
            collection_folder,
            [collection_folder],
            bert_folder,
            out,
            (shard, 3),
            lambda item: done.append((item.variant, item.config.seed)),
        )
        assert 2 <= len(list(told)) <= 3
    assert sorted(done) == [*(("plain", seed) for seed in range(3)), *(("warm", seed) for seed in range(4))]


def test_first_seeds_of_all_variants_come_first(make_grid: MakeGrid) -> None:
    runs = planned(make_grid("seeds = 1\n[more_seeds]\nplain = 2"))
    assert [(item.variant, item.config.seed) for item in runs] == [("plain", 0), ("warm", 0), ("plain", 1)]
    assert len({item.key for item in runs}) == 3


def test_the_budget_replaces_the_keys_it_names_and_no_others(make_grid: MakeGrid) -> None:
    plain, warm = planned(make_grid("seeds = 1\ndocument_tokens = 48"))
    assert warm.config.optimiser.strength_warmup == 0.6
    same = warm.config.optimiser.model_copy(update={"strength_warmup": 0.0})
    assert same == plain.config.optimiser
    assert (same.batch_size, same.max_steps, same.learning_rate, same.precision) == (16, 4, 1e-3, "fp32")
    assert warm.config.watch.steps == 2
    assert warm.config.field_schema.document_tokens == 48


def test_the_key_follows_what_decides_a_result_and_not_the_name(make_grid: MakeGrid) -> None:
    def keys(head: str = "seeds = 1", **variants: str) -> list[object]:
        return [item.key for item in planned(make_grid(head, variants={"plain": PLAIN, **variants}))]

    assert keys(warm=WARM) == keys(renamed=WARM)
    assert keys(warm=WARM) != keys(warm=WARM.replace("0.6", "0.5"))
    assert keys(warm=WARM) != keys("seeds = 1\ndocument_tokens = 48", warm=WARM)


@pytest.mark.parametrize(
    ("head", "tail", "message"),
    [
        ("[more_seeds]\nnobody = 2", "", "nobody, which is none of its variants"),
        ("", '[term_stats]\nnobody = ["model"]\n', "nobody, which is none of its variants"),
        ("[more_seeds]\nwarm = 0", "", r"more_seeds\.warm"),
        ("document_tokens = 1", "", "not valid under the grid's budget"),
    ],
)
def test_a_grid_that_cannot_be_run_is_refused_before_any_work(
    head: str, tail: str, message: str, make_grid: MakeGrid
) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(make_grid(head, tail))


def test_an_unknown_baseline_is_refused(make_grid: MakeGrid) -> None:
    with pytest.raises(ConfigError, match="plain, which is none of its variants"):
        planned(make_grid(variants={"warm": WARM}))


def test_variants_that_share_a_name_or_need_a_teacher_are_refused(make_grid: MakeGrid) -> None:
    grid = make_grid()
    grid.write_text(
        grid.read_text().replace('"warm.toml"', '"warm.toml", "../x/warm.toml"'), encoding="utf-8"
    )
    (grid.parent.parent / "x").mkdir(exist_ok=True)
    (grid.parent.parent / "x" / "warm.toml").write_text('name = "warm"', encoding="utf-8")
    with pytest.raises(ConfigError, match="twice"):
        planned(grid)
    with pytest.raises(ConfigError, match="teacher"):
        planned(make_grid(variants={"plain": PLAIN, "taught": PLAIN + "[objective]\ndistill_weight = 1.0\n"}))


def test_a_half_last_line_is_left_out_and_written_over(tmp_path: Path) -> None:
    """What a kill leaves, wherever it cut the line."""
    out = tmp_path / "results.jsonl"
    append(out, result())
    whole = out.read_bytes()
    second = json.dumps(result(seed=1)).encode()
    for cut in (1, len(second) // 2, len(second)):
        out.write_bytes(whole + second[:cut])
        assert list(finished(out)) == [(0, "0" * 12)]
        append(out, result(seed=2))
        assert [seed for seed, _ in finished(out)] == [0, 2]
        assert out.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("damage", ["{half", '"text"', '{"variant": "x", "seed": 0}', ""])
def test_a_damaged_line_among_whole_ones_is_an_error_that_names_it(damage: str, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    line = json.dumps(result())
    out.write_text(f"{line}\n{damage}\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"results\.jsonl line 2 is no"):
        finished(out)


def _append_many(out: Path, seed: int) -> None:
    for number in range(60):
        append(out, result(seed=seed, config=str(number), note="x" * 20_000))


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append_many, args=(out, seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert finished(out).keys() == {(seed, str(number)) for seed in range(3) for number in range(60)}


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
    # The baseline ends at 0.55; curves rise by 0.1 from step 2 to 4, warm's mean from 0.5667.
    assert "| plain | 1.00 |" in lines
    assert "| warm | 0.50 |" in lines
    assert not any("idf from" in line for line in lines)


def test_tables_of_a_grid_with_one_seed_have_no_intervals(make_grid: MakeGrid) -> None:
    grid = make_grid()
    lines = grid_tables(grid, results_of(grid, {("plain", 0): 0.5, ("warm", 0): 0.3})).splitlines()
    assert "| warm | 1 | toy nDCG@10 | 0.3000 | -0.2000 | | |" in lines
    assert "| warm | not reached |" in lines
    assert "nan" not in "\n".join(lines)


def test_tables_without_a_baseline_or_any_run(make_grid: MakeGrid) -> None:
    grid = make_grid()
    assert grid_tables(grid, grid.with_name("results.jsonl")).startswith("0 of 2 runs are done.")
    lines = grid_tables(grid, results_of(grid, {("warm", 0): 0.3})).splitlines()
    assert "| warm | 1 | toy RR@10 | 0.3000 | | | |" in lines
    assert "| warm | not measured |" in lines


def test_curves_of_different_lengths_are_compared_where_all_have_a_value(make_grid: MakeGrid) -> None:
    grid = make_grid("seeds = 2")
    out = results_of(grid, {("plain", 0): 0.5, ("plain", 1): 0.5, ("warm", 0): 0.6})
    item = next(item for item in planned(grid) if (item.variant, item.config.seed) == ("warm", 1))
    append(out, result(0.6, variant="warm", seed=1, config=item.key[1], curve=[[2, 0.2]], steps=2))
    assert "| warm | not reached |" in grid_tables(grid, out).splitlines()  # at step 2: (0.5 + 0.2) / 2
    append(out, result(0.6, variant="warm", seed=1, config=item.key[1], curve=[[2, 0.7]], steps=2))
    assert "| warm | 0.50 |" in grid_tables(grid, out).splitlines()
    append(out, result(0.6, variant="warm", seed=1, config=item.key[1], curve=[]))
    assert "| warm | not measured |" in grid_tables(grid, out).splitlines()


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
    with pytest.raises(MismatchError, match="do not compare"):
        grid_tables(grid, out)


def test_an_old_line_does_not_join_runs_on_different_files(make_grid: MakeGrid) -> None:
    grid = make_grid("seeds = 2")
    results_of(grid, {("plain", 0): 0.5})
    results_of(grid, {("warm", 0): 0.5}, data={"train": "toy", "files": {"train": "a"}})
    out = results_of(grid, {("warm", 1): 0.5}, data={"train": "toy", "files": {"train": "a"}})
    assert grid_tables(grid, out).startswith("3 of 4 runs are done.")
    out = results_of(grid, {("plain", 1): 0.5}, data={"train": "toy", "files": {"train": "b"}})
    with pytest.raises(MismatchError, match="do not compare"):
        grid_tables(grid, out)


def test_the_commands_run_a_grid_and_report_it(
    make_grid: MakeGrid, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    grid, out = make_grid(), tmp_path / "results.jsonl"
    data = ["--data", str(collection_folder), "--dev", str(collection_folder), "--init", str(bert_folder)]
    files = ["--grid", str(grid), "--out", str(out)]
    call = ["grid", *files, *data, "--threads", "1"]
    first = CliRunner().invoke(app, [*call, "--shard", "1/2"])
    assert first.exit_code == 0, first.output
    assert "1 of 1 runs are left" in first.output
    again = CliRunner().invoke(app, call)
    assert "1 of 2 runs are left" in again.output
    report = CliRunner().invoke(app, ["grid-report", *files])
    assert report.exit_code == 0, report.output
    assert report.stdout.startswith("2 of 2 runs are done. The baseline is plain.")
    assert "| warm | 1 | toy RR@10 |" in report.stdout


@pytest.mark.parametrize("shard", ["2/2", "1", "0/0", "-1/2"])
def test_the_command_refuses_a_shard_that_is_none(
    shard: str, make_grid: MakeGrid, collection_folder: Path, tmp_path: Path
) -> None:
    data = ["--data", str(collection_folder), "--dev", str(collection_folder), "--out", str(tmp_path / "x")]
    done = CliRunner().invoke(app, ["grid", "--grid", str(make_grid()), *data, f"--shard={shard}"])
    assert done.exit_code == 2
    assert "is not I/N" in done.output


def test_the_report_command_names_a_damaged_file(make_grid: MakeGrid, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{half\n", encoding="utf-8")
    done = CliRunner().invoke(
        app, ["grid-report", "--grid", str(make_grid()), "--out", str(tmp_path / "bad.jsonl")]
    )
    assert done.exit_code == 2
    assert "line 1" in done.output
