"""PreTTR's Table 3: quality by layers apart, with late interaction beside them.

Written before the runs. Three layers of MiniLM (0, 4, 5); 20 + 64 tokens; a linear layer over [CLS] is the whole score. Measure:
nDCG@10 over BM25's first 50, 1,000 dev queries of tldr, 95 % intervals over queries and seeds. Hypotheses: (1) one layer apart costs
less than .01; two cost more than .02; (2) joined layers add less than .01 to late interaction over the same states. The rate was
chosen by the training loss of l = 0.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from glow.commands import package_app, reporting, say
from glow.evaluation import evaluate
from glow.nn import CrossEncoder, minilm_folder
from glow.records import Qrel
from glow.training import Given, Place, rerank, run
from glow.training.data import read_collection
from research.folders import append, given_file, given_folder, names_among, read_records

DEPTH = 50
LENGTHS = {"query_tokens": 20, "document_tokens": 64}
OPTIMIZER = {"batch_size": 8, "learning_rate": 3e-4, "head_rate": 3.0}


class Arm(NamedTuple):
    """One form of the re-ranker."""

    split: int  # layers apart, l
    late: bool = False  # whether late interaction over layer l's states is in the score
    joined: bool = True  # whether the joined layers' [CLS] is


ARMS = {
    **{f"l{split}": Arm(split) for split in range(3)},
    **{f"late{split}": Arm(split, late=True, joined=False) for split in range(3)},
    **{f"both{split}": Arm(split, late=True) for split in range(3)},
}
CONTRASTS = (
    "l1-l0 l2-l0 l2-l1 late0-l0 late1-l1 late2-l2 late2-l0 both1-late1 both2-late2 both1-l1 both2-l2".split()
)


def judged(data: Path, run_file: Path, split: str, count: int) -> tuple[rerank.Candidates, list[Qrel]]:
    """Draws `count` queries, always the same: candidates of those with a relevant one, and judgments of all."""
    schema = _config(Arm(0), 0, 1, (0,)).field_schema
    found = rerank.read_candidates(run_file, read_collection(data, split, schema), DEPTH)
    every = found.collection
    drawn = np.random.default_rng(0).permutation(len(every.queries))[:count].tolist()
    qrels = [
        Qrel(every.query_ids[each], every.documents[row].id, 1)
        for each in drawn
        for row in sorted(every.relevant[each])
    ]
    kept = [each for each in drawn if every.relevant[each] & set(found.rows[each].tolist())]
    texts, ids, relevant = (
        [each[at] for at in kept] for each in (every.queries, every.query_ids, every.relevant)
    )
    part = replace(every, queries=texts, query_ids=ids, relevant=relevant)
    rows, scores = ([each[query] for query in kept] for each in (found.rows, found.scores))
    return rerank.Candidates(part, rows, scores), qrels


@dataclass(frozen=True)
class Study:
    """Trains and measures arms."""

    data: Path
    train_run: Path  # TREC run of its training split
    candidates: rerank.Candidates  # what arms are measured on
    qrels: Sequence[Qrel]
    layers: tuple[int, ...] = (0, 4, 5)  # layers of MiniLM to start from
    steps: int = 1  # of every run

    def measure(self, name: str, seed: int) -> dict[str, Any]:
        """Trains and measures one arm."""
        arm, losses = ARMS[name], list[float]()
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "model"
            given = Given(
                data=[self.data], candidates=[self.train_run], out=out, init=minilm_folder(), device="cpu"
            )
            recipe = rerank.reranker_recipe(
                _config(arm, seed, self.steps, self.layers), given, lambda line: None
            )
            _scored_by(recipe.model, arm)
            run(recipe, Place(given.run_folder, out, "cpu"), lambda progress: losses.append(progress.last))
            trained = rerank.load_reranker(out)
        texts = rerank.Texts(self.candidates.collection, trained.preprocessor)
        pad_id, model = trained.preprocessor.pieces.pad_id, _scored_by(trained.model, arm)
        tenths = [round(float(np.mean(part)), 4) for part in np.array_split(losses, 10) if len(part)]
        scores = rerank.score_candidates(model, texts, self.candidates, pad_id, "bf16")
        about = {"arm": name, "seed": seed, "steps": len(losses), "losses": tenths}
        return about | self._figures(scores)

    def first(self) -> dict[str, Any]:
        """The result of the first search alone."""
        return {"arm": "first", "seed": 0} | self._figures(
            rerank.RerankScores(self.candidates, self.candidates.scores)
        )

    def _figures(self, scores: rerank.RerankScores) -> dict[str, Any]:
        """Means, and each query's nDCG@10 in ten-thousandths."""
        found = evaluate(scores.run(0.0), self.qrels, ["nDCG@10", "RR@10"])
        means = {name: round(mean, 4) for name, mean in found.means.items()}
        return {"means": means, "ndcg": np.rint(found.values["nDCG@10"] * 1e4).astype(int).tolist()}


def _scored_by(model: Any, arm: Arm) -> CrossEncoder:
    """The model, with late interaction as its whole score if the arm has no joined layers."""
    if not arm.joined:
        model.score = model.late_score
    return model  # type: ignore[no-any-return]


def _config(arm: Arm, seed: int, steps: int, layers: tuple[int, ...]) -> rerank.RerankConfig:
    parts = {
        "cross": {"init_layers": layers, "split": arm.split, "late": 128 if arm.late else 0, "dropout": 0.0},
        "objective": {"kind": "list", "negatives": 3, "depth": DEPTH},
        "optimizer": OPTIMIZER | {"max_steps": steps},
    }
    about = {"name": "rank", "seed": seed, "checkpoint_steps": steps}
    return rerank.RerankConfig.model_validate(LENGTHS | about | parts)


def tables(results: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown: every arm, then every contrast whose arms have a common seed."""
    arms: dict[str, dict[int, dict[str, Any]]] = {}
    for each in sorted(results, key=lambda each: each["seed"]):
        arms.setdefault(each["arm"], {})[each["seed"]] = each
    lines = ["|arm|steps|RR@10|nDCG@10|of each seed|loss, by tenths|", "|---|---|---|---|---|---|"]
    for name, runs in arms.items():
        ndcg, rr = ([run["means"][each] for run in runs.values()] for each in ("nDCG@10", "RR@10"))
        losses = np.mean([run.get("losses", []) for run in runs.values()], 0)
        steps = next(iter(runs.values())).get("steps", 0)
        cells = f"{np.mean(rr):.3f}|{np.mean(ndcg):.3f}|{' '.join(f'{mean:.3f}' for mean in ndcg)}"
        lines.append(f"|{name}|{steps}|{cells}|{' '.join(f'{loss:.2f}' for loss in losses)}|")
    lines += ["", "|contrast|seeds|nDCG@10|", "|---|---|---|"]
    for contrast in CONTRASTS:
        pair = [arms.get(name, {}) for name in contrast.split("-")]
        if seeds := sorted(pair[0].keys() & pair[1].keys()):
            one, other = (np.array([runs[seed]["ndcg"] for seed in seeds]) / 1e4 for runs in pair)
            mean, low, high = difference(one, other)
            lines.append(f"|{contrast}|{len(seeds)}|{mean:+.3f} ({low:+.3f} to {high:+.3f})|")
    return lines


def difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of `one` less `other`, float64 [seeds, queries], and its interval: both axes are drawn again 10,000 times."""
    random, less = np.random.default_rng(0), one - other
    seeds, queries = less.shape
    means = [
        less[random.integers(seeds, size=seeds)].mean(0)[random.integers(queries, size=queries)].mean()
        for _ in range(10_000)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(less.mean()), float(low), float(high)


Out = Annotated[Path, typer.Option(help="Folder of results.jsonl.")]


def rank_command(
    data: Annotated[Path, given_folder("BEIR folder with splits train and dev")],
    train_run: Annotated[Path, given_file("TREC run of the split train")],
    dev_run: Annotated[Path, given_file("TREC run of the split dev")],
    out: Out,
    arms: Annotated[str, names_among(tuple(ARMS), "Arms, in this order")] = ",".join(ARMS),
    seeds: Annotated[str, typer.Option(help="Seeds, in this order.")] = "0,1,2",
    steps: Annotated[int, typer.Option(min=1, help="Of 8 queries.")] = 800,
    queries: Annotated[int, typer.Option(min=1, help="Of the split dev.")] = 1000,
    layers: Annotated[str, typer.Option(help="Layers of MiniLM to start from.")] = "0,4,5",
) -> None:
    """Train and measure arms; results that exist are kept."""
    torch.set_num_threads(1)
    with reporting():
        file = out / "results.jsonl"
        known = {(each["arm"], each["seed"]) for each in read_records(file)} if file.is_file() else set()
        kept = tuple(int(layer) for layer in layers.split(","))
        study = Study(data, train_run, *judged(data, dev_run, "dev", queries), kept, steps)
        every = [(name, seed) for seed in map(int, seeds.split(",")) for name in arms.split(",")]
        for name, seed in [("first", 0), *every]:
            if (name, seed) not in known:
                result = study.measure(name, seed) if name in ARMS else study.first()
                append(file, result)
                say(f"{name} {seed}: {result['means']} {result.get('losses', '')}")


def report_command(results: Annotated[Path, given_file("JSON Lines of `rank`")]) -> None:
    """Print the tables of arms and contrasts."""
    typer.echo("\n".join(tables(read_records(results))))


app = package_app(
    {"rank": rank_command, "report": report_command}, "PreTTR's tables beside late interaction."
)

if __name__ == "__main__":
    app()
