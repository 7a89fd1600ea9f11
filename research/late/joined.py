"""What a trained re-ranker (PreTTR) adds to late interaction that needs no training (docs/results/reranking.md).

python -m research.late.joined score --checkpoint RERANKER --run RUN --data COLLECTION --out FILE.npz      # for each seed and collection
python -m research.late.joined report --scores FOLDER --json FILE       # FOLDER/SEED/COLLECTION.npz

q   queries     c   candidates of a query, 50 at most
"""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from glow.collection import read_qrels
from glow.commands import room_app
from glow.evaluation import dcg, grades_by_query
from glow.text import batches_by_length
from glow.training.data import read_collection
from glow.training.rerank import TrainedReranker, load_reranker, read_candidates
from glow.training.rerank.candidates import Texts
from glow.training.rerank.measure import read_side

DEPTH = 50
BATCH_TOKENS = 2048
UNTRAINED = ("science", "office", "faq")
SHARES = (0.0, *(2.0**power for power in range(-9, 1)))
DRAWS = 4000
Floats = NDArray[np.float64]


def score_command(
    checkpoint: Annotated[Path, typer.Option(help="Checkpoint of a re-ranker.")],
    data: Annotated[Path, typer.Option(help="Data folder.")],
    run: Annotated[Path, typer.Option(help="TREC run of hybrid search with late interaction.")],
    out: Annotated[Path, typer.Option(help="Where scores go.")],
    queries: Annotated[int, typer.Option(help="So many, drawn by seed 0; 0: all.")] = 0,
    split: Annotated[str, typer.Option(help="Split of the judgements.")] = "dev",
) -> None:
    """Write the first search's score of each candidate, and both parts of the re-ranker's."""
    torch.set_num_threads(1)
    found = load_reranker(checkpoint)
    collection = read_collection(data, split, found.preprocessor.schema)
    candidates = read_candidates(run, collection, DEPTH)
    grades = grades_by_query(list(read_qrels(data / "qrels" / f"{split}.tsv")))
    drawn = np.random.default_rng(0).permutation(len(collection.queries))
    numbers = sorted(drawn[: queries or None].tolist())
    rows = [candidates.rows[number] for number in numbers]
    parts = _parts(found, Texts(collection, found.preprocessor), numbers, rows)
    judged = [grades[collection.query_ids[number]] for number in numbers]
    ids = [document.id for document in collection.documents]
    empty = np.full((len(rows), DEPTH), np.nan, np.float32)
    arrays = {key: empty.copy() for key in ("first", "late", "joined", "grades")}
    for at, number in enumerate(numbers):
        count = len(rows[at])
        arrays["first"][at, :count] = candidates.scores[number]
        arrays["grades"][at, :count] = [judged[at].get(ids[row], 0) for row in rows[at].tolist()]
        arrays["late"][at, :count], arrays["joined"][at, :count] = parts[at]
    ideal = [dcg(sorted(each.values(), reverse=True)[:10]) for each in judged]
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, ideal=np.array(ideal), **arrays)  # type: ignore[arg-type]


def _parts(
    found: TrainedReranker, texts: Texts, numbers: Sequence[int], rows: Sequence[NDArray[np.int64]]
) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Late interaction and what the joined layer adds, of every candidate; each document is read once."""
    model, pad_id, device = found.model, found.preprocessor.pieces.pad_id, torch.device("cpu")
    wanted = np.unique(np.concatenate(rows)).tolist()
    kept: dict[int, torch.Tensor] = {}
    parts = []
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        tokens = [texts.document(row) for row in wanted]
        for places in batches_by_length([len(each) for each in tokens], BATCH_TOKENS):
            ids, mask, fields, _ = read_side([tokens[place] for place in places], pad_id, device)
            for place, states in zip(places, model.stored(ids, mask, fields), strict=True):
                kept[wanted[place]] = states[: len(tokens[place])].to(torch.bfloat16).clone()
        for number, each in zip(numbers, rows, strict=True):
            ids, mask, _, weights = read_side([texts.query(number)], pad_id, device)
            query = model.read_query(ids, mask, weights)
            _, mask, _, weights = read_side([texts.document(row) for row in each.tolist()], pad_id, device)
            states = torch.nn.utils.rnn.pad_sequence([kept[row] for row in each.tolist()], batch_first=True)
            document = model.restore(states, mask, weights)
            late = model.late_score(query, document).float().numpy()
            parts.append((late, model.score(query, document).float().numpy() - late))
    return parts


Scores = Mapping[str, Mapping[str, NDArray[Any]]]
"""Collection -> array -> values."""


def report_command(
    scores: Annotated[Path, typer.Option(help="Folder of seeds, each of collections.")],
    json_file: Annotated[Path, typer.Option("--json", help="Report.")],
) -> None:
    """Compare rankings, by shares that the other collections choose."""
    seeds = [
        {path.stem: dict(np.load(path)) for path in sorted(folder.glob("*.npz"))}
        for folder in sorted(scores.iterdir())
        if folder.is_dir()
    ]
    runs = [_rankings(seed) for seed in seeds]
    names = list(seeds[0])
    report: dict[str, Any] = {
        "nDCG@10": [
            {key: {name: round(float(run[key][name].mean()), 4) for name in names} for key in run}
            for run in runs
        ]
    }
    for better, worse in (
        ("joined", "first"),
        ("late", "first"),
        ("joined", "late"),
        ("both", "late"),
        ("both", "first"),
    ):
        differences = {
            name: np.array([run[better][name] - run[worse][name] for run in runs]) for name in names
        }
        report[f"{better} less {worse}"] = {
            **{name: _interval([values]) for name, values in differences.items()},
            "untrained": _interval([differences[name] for name in UNTRAINED]),
            "by seed": np.mean([differences[name].mean(1) for name in UNTRAINED], axis=0).round(5).tolist(),
        }
    report["shares"] = [_chosen_shares(seed) for seed in seeds]
    json_file.write_text(json.dumps(report, indent=1) + "\n")


GRIDS: dict[str, list[tuple[float, float]]] = {
    "first": [(0.0, 0.0)],
    "joined": [(share, share) for share in SHARES],
    "late": [(share, 0.0) for share in SHARES],
    "both": list(product(SHARES, SHARES)),
}
"""Shares of late interaction and of what the joined layer adds."""


def _measured(seed: Scores) -> dict[str, dict[str, list[Floats]]]:
    return {
        key: {
            name: [
                _ndcg(each, each["first"] + late * each["late"] + own * each["joined"]) for late, own in grid
            ]
            for name, each in seed.items()
        }
        for key, grid in GRIDS.items()
    }


def _left_out(measured: Mapping[str, Sequence[Floats]]) -> dict[str, int]:
    means = {name: np.array([values.mean() for values in each]) for name, each in measured.items()}
    return {
        name: int(np.argmax(np.round(np.mean([means[other] for other in means if other != name], axis=0), 6)))
        for name in means
    }


def _rankings(seed: Scores) -> dict[str, dict[str, Floats]]:
    """nDCG@10 of each query, by ranking and collection."""
    measured = _measured(seed)
    return {
        key: {name: each[name][at] for name, at in _left_out(each).items()} for key, each in measured.items()
    }


def _chosen_shares(seed: Scores) -> dict[str, dict[str, tuple[float, float]]]:
    measured = _measured(seed)
    return {
        key: {name: GRIDS[key][at] for name, at in _left_out(each).items()} for key, each in measured.items()
    }


def _ndcg(each: Mapping[str, NDArray[Any]], scores: NDArray[Any]) -> Floats:
    """Of each query; equals stay in the first search's order."""
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), axis=1, kind="stable")[:, :10]
    gains = np.nan_to_num(np.take_along_axis(each["grades"], order, axis=1))
    found: Floats = (gains / np.log2(np.arange(gains.shape[1]) + 2)).sum(1) / np.maximum(each["ideal"], 1e-9)
    return found


def _interval(differences: Sequence[Floats]) -> list[float]:
    """The mean over collections of differences [seeds, q], and its 95 % interval; queries and seeds are drawn."""
    generator = np.random.default_rng(0)
    seeds = len(differences[0])
    draws = np.zeros(DRAWS)
    for at in range(DRAWS):
        chosen = generator.integers(0, seeds, seeds)
        draws[at] = np.mean(
            [
                values[chosen].mean(0)[generator.integers(0, values.shape[1], values.shape[1])].mean()
                for values in differences
            ]
        )
    mean = float(np.mean([values.mean() for values in differences]))
    return [round(each, 5) for each in (mean, *np.percentile(draws, [2.5, 97.5]).tolist())]


app = room_app({"score": score_command, "report": report_command}, "PreTTR beside late interaction.")

if __name__ == "__main__":
    app()
