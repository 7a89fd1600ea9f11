"""Trains static query towers with several weights of words, and measures each with a model's own documents.

python -m research static --texts texts.txt --data $DATA/tldr [--data …] --out runs/static [--seeds 5]

Written before the runs. Hypothesis: a table that learns absorbs a weight for each token, so BM25 weights gain at most .01 nDCG@10
over none, on datasets of its texts and on others; an untrained table needs them. Measure: nDCG@10 of exact search, the mean of
the seeds, and its difference from `none` with a 95 % interval over queries. Controls: a stop list, SIF.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from glow.artifact import default_model
from glow.commands import reporting, say
from glow.evaluation import Evaluation, compare_all, evaluate, find_tasks
from glow.nn import TwoTowers
from glow.records import Hit, Query
from glow.runtime import Model
from glow.text import Preprocessor, TermTable, WeightedTokens
from glow.training import (
    Place,
    QueryTexts,
    query_recipe,
    read_towers,
    run,
    vectors,
    with_static_queries,
)
from glow.training.data import count_terms, read_collection
from glow_model_export.static import start_of_static_queries
from research.folders import given_file, given_folder

SPLITS = ("dev", "liveqa-dev", "test")
HELD_OUT = 2000
SIF = 1e-3
"""SIF's constant: a word of probability p weighs SIF / (SIF + p)."""
MEASURE = "nDCG@10"
Vectors = NDArray[np.float32]
app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Arm:
    """One form of weights.

    Attributes:
        formula: of the preprocessor; `sif` is none of its own.
        exponent: of the weights.
        learns: whether the exponent learns.
    """

    formula: str
    exponent: float = 1.0
    learns: bool = False


ARMS = {
    "none": Arm("none"),
    "BM25, learned": Arm("paper", 0.5, learns=True),
    "BM25, 1": Arm("paper"),
    "stop list": Arm("stop"),
    "SIF": Arm("sif"),
}


class SifPreprocessor:
    """A preprocessor whose queries have SIF's weights."""

    def __init__(self, plain: Preprocessor) -> None:
        self.pieces, self._plain = plain.pieces, plain
        self._total = max(sum(count for _, count in plain.terms.items()), 1)

    def query(self, text: str) -> WeightedTokens:
        """A query's tokens; [CLS] and [SEP] weigh 1."""
        tokens = self._plain.query(text)
        of_words = [SIF / (SIF + self._plain.terms.df(word) / self._total) for word in tokens.words]
        weights = np.array([*of_words, 1.0], np.float32)[tokens.word_ids]  # word -1, of specials, is the last
        return replace(tokens, weights=weights)


class Remembered:
    """A preprocessor that reads each query once for all passes over the texts."""

    def __init__(self, plain: Any) -> None:
        self.pieces, self._plain = plain.pieces, plain
        self._known: dict[str, WeightedTokens] = {}

    def query(self, text: str) -> WeightedTokens:
        """A query's tokens."""
        if text not in self._known:
            self._known[text] = self._plain.query(text)
        return self._known[text]


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """A judged dataset with the model's document vectors, float32 [documents, D]."""

    name: str
    terms: TermTable
    queries: Sequence[Query]
    qrels: Sequence[Any]
    ids: Sequence[str]
    documents: Vectors


@app.command("static")
def main(
    texts: Annotated[Path, given_file("a text a line, as of `python -m research distil texts`")],
    data: Annotated[list[Path], given_folder("BEIR folder; may be given several times")],
    out: Annotated[
        Path, typer.Option(help="folder for vectors, runs and results.json; a stopped call resumes")
    ],
    model: Annotated[Path | None, given_folder("Model; default: models/DEFAULT")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="runs of each arm")] = 5,
    count: Annotated[int, typer.Option(min=HELD_OUT * 2, help="most texts")] = 100_000,
    epochs: Annotated[int, typer.Option(min=1, help="passes over the texts")] = 2,
) -> None:
    """Prints a table of the arms; untrained tables are seed -1."""
    with reporting():
        study = Study(Model.open(model or default_model()), out, texts, count, epochs)
        collections = [each for folder in data for each in study.collections(folder)]
        for seed in range(-1, seeds):
            for name, arm in ARMS.items():
                study.measure(name, arm, seed, collections)
        for line in study.table(collections):
            typer.echo(line)


class Study:
    """The runs and their figures."""

    def __init__(self, model: Model, out: Path, texts: Path, count: int, epochs: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.model, self.out, self.epochs = model, out, epochs
        self.whole = read_towers(model)
        self.rows = start_of_static_queries(model, self.whole.config.vocabulary)
        lines = texts.read_text(encoding="utf-8").splitlines()[:count]
        self.made = QueryTexts.encoded(
            out / "teacher", model.encoder("query", batch_tokens=1024).encode, model.hash, model.preprocessor,
            lines[HELD_OUT:], lines[:HELD_OUT],
        )  # fmt: skip
        self.file = out / "results.json"
        self.found: dict[str, Any] = json.loads(self.file.read_bytes()) if self.file.is_file() else {}

    def collections(self, folder: Path) -> list[Collection]:
        """The judged splits of a folder."""
        own = self.model.preprocessor
        tasks = find_tasks(folder, SPLITS)
        read = read_collection(folder, tasks[0].split, own.schema)
        terms = count_terms([read], own.schema, own.pieces)
        file, weighed = self.out / f"{folder.name}.npy", self.model.with_terms(terms)
        if not file.is_file():
            encoder = self.model.encoder("document", batch_tokens=1024)
            np.save(file, encoder.encode([weighed.document(each) for each in read.documents]))
        ids, rows = [each.id for each in read.documents], np.load(file)
        return [
            Collection(f"{task.data} {task.split}", terms, task.queries, task.qrels, ids, rows)
            for task in tasks
        ]

    def measure(self, name: str, arm: Arm, seed: int, collections: Sequence[Collection]) -> None:
        """Trains one table, if its figures are missing, and writes nDCG@10 of each query."""
        key = f"{name}/{seed}"
        if key in self.found:
            return
        towers = with_static_queries(self.whole, self.rows, arm.exponent)
        for part in (towers.document, towers.words):
            part.requires_grad_(False)
        towers.query.gain.requires_grad_(arm.learns)  # type: ignore[union-attr]
        preprocessor: Any = Remembered(self._weighed(arm, self.model.preprocessor.terms))
        report: dict[str, Any] = {}
        if seed >= 0:
            recipe = query_recipe(towers, preprocessor, self.made, seed, epochs=self.epochs)
            place = Place(self.out / "runs" / key.replace(" ", "-").replace("/", "-"), None, "cpu")
            report = dict(run(recipe, place, lambda progress: None))
        figures = {each.name: self._search(towers, arm, each).per_query[MEASURE] for each in collections}
        exponent = float(towers.query.gain.detach())  # type: ignore[union-attr]
        self.found[key] = {"exponent": exponent, "training": report, MEASURE: figures}
        self.file.write_text(json.dumps(self.found), encoding="utf-8")
        say(f"{key}: exponent {exponent:.2f}")

    def _weighed(self, arm: Arm, terms: TermTable) -> Any:
        own = self.model.preprocessor
        formula = "none" if arm.formula == "sif" else arm.formula
        weighting = own.weighting.model_copy(update={"formula": formula})
        plain = Preprocessor(own.pieces, own.schema, weighting, terms)
        return SifPreprocessor(plain) if arm.formula == "sif" else plain

    def _search(self, towers: TwoTowers, arm: Arm, collection: Collection) -> Evaluation:
        preprocessor = self._weighed(arm, collection.terms)
        tokens = [preprocessor.query(query.text) for query in collection.queries]
        pad_id = self.model.preprocessor.pieces.pad_id
        cosines = vectors(towers.query, tokens, pad_id, "fp32") @ collection.documents.T
        return _evaluated(collection, cosines)

    def table(self, collections: Sequence[Collection]) -> list[str]:
        """Markdown: nDCG@10 of `none`, and the other arms' differences from it."""
        names = [each.name for each in collections]
        lines = [f"|trained|weights|exponent|{'|'.join(names)}|", f"|---|---|---|{'---|' * len(names)}"]
        for trained in (False, True):
            base = self._mean("none", names, trained)
            for arm in ARMS:
                mean = self._mean(arm, names, trained)
                cells = [self._cell(arm, base[name], mean[name]) for name in names]
                powers = [each["exponent"] for key, each in self.found.items() if _is(key, arm, trained)]
                start = f"|{'yes' if trained else 'no'}|{arm}|{np.mean(powers):.2f}"
                lines.append(f"{start}|{'|'.join(cells)}|")
        return lines

    def _mean(self, arm: str, names: Sequence[str], trained: bool) -> dict[str, Evaluation]:
        """Each query's mean over the seeds."""
        runs = [each[MEASURE] for key, each in self.found.items() if _is(key, arm, trained)]
        means = {name: np.mean([list(each[name].values()) for each in runs], axis=0) for name in names}
        return {name: Evaluation(tuple(runs[0][name]), {MEASURE: means[name]}) for name in names}

    @staticmethod
    def _cell(arm: str, base: Evaluation, mean: Evaluation) -> str:
        if arm == "none":
            return f"{mean.means[MEASURE]:.4f}"
        found = compare_all(base, [mean])[0][MEASURE]
        return f"{found.difference:+.4f} ({found.low:+.4f} to {found.high:+.4f})"


def _is(key: str, arm: str, trained: bool) -> bool:
    name, seed = key.rsplit("/", 1)
    return name == arm and (int(seed) >= 0) == trained


def _evaluated(collection: Collection, cosines: Vectors) -> Evaluation:
    hits = {}
    for query, row in zip(collection.queries, cosines, strict=True):
        best = np.argpartition(-row, 10)[:10]
        best = best[np.argsort(-row[best], kind="stable")]
        hits[query.id] = [Hit(collection.ids[place], float(row[place])) for place in best.tolist()]
    return evaluate(hits, list(collection.qrels), [MEASURE])


if __name__ == "__main__":
    app()
