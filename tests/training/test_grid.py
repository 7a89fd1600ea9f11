"""A grid of tiny runs: what is done once, by whom, under which budget; its results file and commands."""

import json
import multiprocessing
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glow.errors import ConfigError, InputError, MismatchError
from research.grid.__main__ import app
from research.grid.grid import planned, run
from research.grid.measure import MEASURES
from research.grid.report import grid_tables
from research.grid.results import append, finished, same_data
from tests.training.grid_files import PLAIN, WARM, MakeGrid, result, results_of


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
    assert set(first["measures"]["toy"]) == set(MEASURES)
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
    with pytest.raises(ConfigError, match="elsewhere, which is not a --dev directory"):
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
        "research.grid.grid._result",
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
    rows = finished(Path(__file__).parents[2] / "docs" / "papers" / "grid.jsonl").values()
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
    monkeypatch.setattr("research.grid.grid._result", lambda item, *rest: result(seed=item.config.seed))
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


def test_a_variants_tables_are_merged_over_those_of_the_base(make_grid: MakeGrid) -> None:
    plain, warm = planned(make_grid(base="document_tokens = 48"))
    assert warm.config.optimizer.strength_warmup == 0.6
    same = warm.config.optimizer.model_copy(update={"strength_warmup": 0.0})
    assert same == plain.config.optimizer
    assert (same.batch_size, same.max_steps, same.learning_rate, same.precision) == (16, 4, 1e-3, "fp32")
    assert warm.config.watch.steps == 2
    assert warm.config.field_schema.document_tokens == 48
    assert (plain.config.name, warm.config.name) == ("plain", "warm")
    other = {"plain": PLAIN + "optimizer.batch_size = 8\ntowers.init_layers = [2]\n"}
    (plain,) = planned(make_grid(variants=other))
    assert (plain.config.optimizer.batch_size, plain.config.optimizer.max_steps) == (8, 4)
    assert plain.config.towers.init_layers == (2,)


def test_the_key_follows_what_decides_a_result_and_not_the_name(make_grid: MakeGrid) -> None:
    def keys(base: str = "", **variants: str) -> list[object]:
        return [item.key for item in planned(make_grid(base=base, variants={"plain": PLAIN, **variants}))]

    assert keys(warm=WARM) == keys(renamed=WARM)
    assert keys(warm=WARM) != keys(warm=WARM.replace("0.6", "0.5"))
    assert keys(warm=WARM) != keys("document_tokens = 48", warm=WARM)


def test_the_shipped_grids_keep_the_keys_of_their_results() -> None:
    """By grid and variant: the digest of its runs' keys, and how many runs it has."""
    root = Path(__file__).parents[2]
    kept = json.loads((root / "tests" / "training" / "grid_keys.json").read_text(encoding="utf-8"))
    assert kept.keys() == {path.stem for path in (root / "research" / "grid").glob("*.toml")}
    for name, variants in kept.items():
        runs = [(item.variant, *item.key) for item in planned(root / "research" / "grid" / f"{name}.toml")]
        most = max(count for _, count in variants.values())
        assert runs == [
            (variant, seed, digest)
            for seed in range(most)
            for variant, (digest, count) in variants.items()
            if seed < count
        ]


@pytest.mark.parametrize(
    ("head", "tail", "base", "message"),
    [
        ("[more_seeds]\nnobody = 2", "", "", "nobody, which are not its variants"),
        ("", '[term_stats]\nnobody = ["model"]\n', "", "nobody, which are not its variants"),
        ("[more_seeds]\nwarm = 0", "", "", r"more_seeds\.warm"),
        ("", "", "document_tokens = 1", "variant plain is not valid: "),
        ("", "optimizer.speed = 1\n", "", r"variant warm is not valid: optimizer\.speed"),
        ("", "objective.distill_weight = 1.0\n", "", "variant warm requires a teacher"),
        ("", "[variants.plain]\n", "", "cannot read"),
    ],
)
def test_a_grid_that_cannot_be_run_is_refused_before_any_work(
    head: str, tail: str, base: str, message: str, make_grid: MakeGrid
) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(make_grid(head, tail, base))


def test_an_unknown_baseline_is_refused(make_grid: MakeGrid) -> None:
    with pytest.raises(ConfigError, match="plain, which are not its variants"):
        planned(make_grid(variants={"warm": WARM}))


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
