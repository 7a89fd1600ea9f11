"""A trained projection of tokens beside the one that ships, step by step (docs/results/late-interaction.md).

python -m research.late.learn data --packages MANUALS --collections COLLECTIONS        # and `glow build --index flat` of the manuals
python -m research.late.learn gather --collections COLLECTIONS --indices INDICES --work WORK
python -m research.late.learn train --work WORK --objective relevant --seeds 0,1,2,3,4 --out LEARNED
python -m research.late.learn report --work WORK --learned LEARNED --json FILE
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from glow.artifact import default_model
from glow.commands import reporting, room_app
from glow.runtime import Model
from research.late.candidates import Candidates, encode_documents, gather, open_candidates
from research.late.collections import COLLECTIONS
from research.late.forms import REFERENCE, column, load_projection, make_columns
from research.late.learned_projection import OBJECTIVES, SERVED, SHIPPED, open_learning, train_projection
from research.late.learning import LEARNING, SPLIT, write_learning
from research.late.ranking import DRAWS, Measured, best_setting, left_out, measure
from research.late.sums import SUMS
from research.late.tokens import Projection

Work = Annotated[Path, typer.Option(help="Folder of states and columns.")]
Collections = Annotated[Path, typer.Option(help="What `collections` wrote.")]
UNTRAINED = ("science", "office", "faq")
"""Collections of which the encoder knows nothing: the rule is about these."""


def data_command(
    data: Annotated[Path, typer.Option(envvar="GLOW_DATA", help="Holds tldr and medquad.")],
    packages: Annotated[Path, typer.Option(help="Holds a folder for each package of manuals.")],
    collections: Collections,
) -> None:
    """Write training queries, and the manuals' sections."""
    for name, (documents, queries) in write_learning(data, packages, collections).items():
        _say(f"{name}: {documents:,} documents, {queries:,} queries")


def gather_command(
    collections: Collections,
    indices: Annotated[Path, typer.Option(help="Holds an index root for each collection.")],
    work: Work,
) -> None:
    """Candidates, states, and late interaction by floats and as it ships."""
    with reporting():
        model = Model.open(default_model())
        for name, searched in LEARNING.items():
            gather(name, collections / name, indices / searched, model, work, SPLIT)
            if name == searched:
                encode_documents(name, indices / searched, model, work)
            elif not (work / name / "documents").exists():
                (work / name / "documents").symlink_to((work / searched / "documents").resolve())
            for form in (REFERENCE, SHIPPED):
                make_columns(form, open_candidates(name, work), load_projection(work), work)
            _say(name)


def train_command(
    work: Work,
    out: Annotated[Path, typer.Option(help="Where projections and their columns go.")],
    objective: Annotated[str, typer.Option(help=" or ".join(OBJECTIVES))],
    seeds: Annotated[str, typer.Option(help="With commas between.")] = "0",
    steps: Annotated[int, typer.Option(help="Of eight queries.")] = 600,
    rate: Annotated[float, typer.Option(help="Of Adam, at its highest.")] = 3e-4,
    columns: Annotated[bool, typer.Option(help="Whether to score the collections that are measured.")] = True,
) -> None:
    """Train a projection with each seed, and score every candidate with it."""
    torch.set_num_threads(1)
    sources = [open_learning(name, work) for name in LEARNING]
    start = np.ascontiguousarray(load_projection(work).directions[:, : SHIPPED.size])
    for seed in map(int, seeds.split(",")):
        directions, looks = train_projection(
            objective, sources, start, seed, steps, rate, max(steps // 4, 1), _say
        )
        folder = out / f"{objective}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "projection.npz", directions=directions)
        (folder / "looks.json").write_text(json.dumps({"rate": rate, "steps": steps, "kept loss": looks}))
        if columns:
            _columns(folder, directions, work)


def _columns(folder: Path, directions: np.ndarray[Any, np.dtype[np.float32]], work: Path) -> None:
    """Late interaction by other directions, in a folder that shares states and candidates with `work`."""
    projection = Projection(directions, np.ones(SHIPPED.size, np.float32))
    for name in COLLECTIONS:
        (folder / name).mkdir(exist_ok=True)
        for each in ("documents", "queries", "candidates.npz"):
            if not (folder / name / each).exists():
                (folder / name / each).symlink_to((work / name / each).resolve())
        make_columns(SHIPPED, open_candidates(name, folder), projection, folder)


def report_command(
    work: Work,
    learned: Annotated[Path, typer.Option(help="What `train` wrote.")],
    json_file: Annotated[Path, typer.Option("--json", help="Report.")],
) -> None:
    """Compare with what ships: the served sum, each projection with weights that the other collections choose."""
    found = {name: open_candidates(name, work) for name in COLLECTIONS}
    found = {name: replace(each, covered=np.ones_like(each.covered)) for name, each in found.items()}
    shipped = _measured(found, work)
    report: dict[str, Any] = {"shipped": _means(shipped)}
    floats = {name: column(REFERENCE, name, work) for name in found}
    report["384 floats"] = _against([_chosen(found, floats)], shipped)
    for objective in OBJECTIVES:
        folders = sorted(learned.glob(f"{objective}-*"))
        if folders:
            runs = [_measured(found, folder) for folder in folders]
            report[objective] = _against(runs, shipped)
            report[objective]["looks"] = [json.loads((each / "looks.json").read_bytes()) for each in folders]
    json_file.write_text(json.dumps(report, indent=1) + "\n")


Run = Mapping[str, Mapping[str, Measured]]


def _measured(found: Mapping[str, Candidates], folder: Path) -> Run:
    return _chosen(found, {name: column(SHIPPED, name, folder) for name in found})


def _chosen(
    found: Mapping[str, Candidates], late: Mapping[str, np.ndarray[Any, np.dtype[np.float32]]]
) -> Run:
    """Late interaction alone, in the sum as it is served, and with weights that other collections choose."""
    form = SUMS["sum, uncertainty"]
    measured = form.measured(found, late)
    chosen = left_out(measured)
    together = best_setting(measured, list(measured))
    fixed = {
        name: measure(each, SERVED.score(each.cosine, late[name], form.lexical(each)))
        for name, each in found.items()
    }
    return {
        "alone": {name: measure(each, late[name]) for name, each in found.items()},
        "served": fixed,
        "left out": {name: measured[name][at] for name, at in chosen.items()},
        "together": {name: each[together] for name, each in measured.items()},
    }


def _means(run: Run) -> dict[str, dict[str, float]]:
    return {
        key: {name: round(float(each.ndcg.mean()), 4) for name, each in found.items()}
        for key, found in run.items()
    }


def _against(runs: Sequence[Run], shipped: Run) -> dict[str, Any]:
    """nDCG@10 of every run, and differences of the mean over runs with intervals over queries."""
    report: dict[str, Any] = {"runs": [_means(run) for run in runs]}
    for key in shipped:
        differences = {
            name: np.mean([run[key][name].ndcg for run in runs], axis=0) - shipped[key][name].ndcg
            for name in shipped[key]
        }
        report[f"{key} less shipped"] = {
            **{name: _interval([values]) for name, values in differences.items()},
            "untrained": _interval([differences[name] for name in UNTRAINED]),
            "all": _interval(list(differences.values())),
            "untrained by run": [
                float(np.mean([(run[key][n].ndcg - shipped[key][n].ndcg).mean() for n in UNTRAINED]))
                for run in runs
            ],
        }
    return report


def _interval(differences: Sequence[np.ndarray[Any, np.dtype[np.float64]]]) -> list[float]:
    """The mean over collections, and its 95 % bootstrap interval, queries drawn in each collection."""
    generator = np.random.default_rng(0)
    draws = np.mean(
        [values[generator.integers(0, len(values), (DRAWS, len(values)))].mean(1) for values in differences],
        axis=0,
    )
    mean = float(np.mean([values.mean() for values in differences]))
    return [round(each, 5) for each in (mean, *np.percentile(draws, [2.5, 97.5]).tolist())]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


app = room_app(
    {"data": data_command, "gather": gather_command, "train": train_command, "report": report_command},
    "A trained projection of tokens.",
)

if __name__ == "__main__":
    app()
