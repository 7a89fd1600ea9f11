"""The probabilities of hybrid search, step by step (docs/results/quality.md).

python -m research ranking nothing --collections DATA --out NOTHING
python -m research ranking columns --collections DATA --indices INDICES --work WORK --split dev
python -m research ranking columns --collections NOTHING --indices INDICES --work WORK/nothing
python -m research ranking calibrate --work WORK --model MODEL --out NEW_MODEL

m   candidates of all queries, query by query                   q   queries
"""

import random
import shutil
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from glow.artifact import CALIBRATION_FILE, IndexRoot, verify, write_artifact
from glow.commands import package_app, reporting, say
from glow.errors import MismatchError
from glow.evaluation import find_tasks, grades_by_query
from glow.index import DEFAULT_FUSION, CalibratedFusion, Calibration, Index
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.search import (
    DEFAULT_CANDIDATES,
    HEAD,
    SHARPNESS,
    EncodedQuery,
    analyze_query,
    fit_logistic,
    gather_hybrid,
    signs_of,
    uncertainty,
)
from research.folders import given_folder, read_records, write_folder

DEPTH = 10
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of both retrievers in one dataset."""

    starts: NDArray[np.int64]  # [q + 1]
    order: NDArray[np.int64]  # [m], a document's place in a tie; rows ascend within a query
    grades: NDArray[np.int64]  # [m]
    cosine: Floats  # [m], as the next three
    impacts: Floats
    covered: Floats
    head: Floats  # [q, 10], the highest cosines of all documents, padded by 0
    shares: Floats  # [q], factor of the lexical weight: less for questions
    scale: float  # the largest impact of the index

    @cached_property
    def openness(self) -> Floats:
        """Factor of the lexical score, float32 [m]: the uncertainty of the dense ranking, less for questions."""
        values = np.array([uncertainty(head) for head in self.head]) * self.shares
        return np.repeat(values, np.diff(self.starts)).astype(np.float32)


def gather(data: Path, index_root: Path, path: Path, split: str) -> int:
    """Searches a split's queries with both retrievers; writes a file for `open_candidates`, returns the number of queries."""
    root = IndexRoot(index_root)
    index, task = Index.open(root.folder(root.current()), threads=1), find_tasks(data, [split])[0]
    columns = [_columns(index, query.text) for query in task.queries]
    arrays = {key: np.concatenate([each[key] for each in columns]) for key in columns[0]}
    rows, counts = arrays.pop("rows"), [len(each["rows"]) for each in columns]
    ids = [document.id for document in index[STORED_FIELDS].scan()]
    order = np.arange(len(ids)) if index.order is None else np.asarray(index.order, np.int64)
    grades = grades_by_query(task.qrels)
    owners = np.repeat(np.arange(len(counts)), counts).tolist()
    judged = [
        grades[task.queries[at].id].get(ids[row], 0) for at, row in zip(owners, rows.tolist(), strict=True)
    ]
    arrays |= {
        "starts": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "order": order[rows],
        "grades": np.array(judged),
        "scale": np.array(index[POSTINGS].largest),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return len(counts)


def _columns(index: Index, text: str) -> dict[str, NDArray[Any]]:
    reading = analyze_query(index, text)
    query = EncodedQuery(reading.text, index.encoder.run([reading.tokens])[0])
    dense, gathered = gather_hybrid(index, query, DEFAULT_CANDIDATES)
    rows = np.union1d(dense.rows, gathered.lexical[1]).astype(np.int64)
    if gathered.score_dense is None or gathered.score_covered is None:
        raise MismatchError(
            "build the index by the default model, with words and whole vectors (--index flat)"
        )
    head = np.zeros((1, HEAD), np.float32)
    head[0, : len(dense.scores[:HEAD])] = dense.scores[:HEAD]
    return {
        "rows": rows,
        "cosine": gathered.score_dense(rows),
        "impacts": gathered.score_lexical(rows),
        "covered": gathered.score_covered(rows),
        "head": head,
        "shares": np.array([gathered.lexical_share], np.float32),
    }


def open_candidates(path: Path) -> Candidates:
    """Opens a file of `gather`."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    return Candidates(**arrays | {"scale": float(arrays["scale"])})


STRANGERS = {
    "tldr": ["medquad"],
    "medquad": ["tldr", "howto-postgresql"],
    "npl": ["medquad"],
    "howto-postgresql": ["medquad"],
}
"""Dataset -> datasets whose questions it cannot answer."""
EACH, SEED = 60, 36
TEXTS = 600
"""Numbers of documents, and of words of each, that known words are drawn from."""


def write_nothing(collections: Mapping[str, Path], out: Path) -> None:
    """Writes a directory for each dataset of `STRANGERS`: its documents, and queries judged on an arbitrary one."""
    draw = random.Random(SEED)  # noqa: S311 - queries, not secrets
    for name, strangers in STRANGERS.items():
        documents = read_records(collections[name] / "corpus.jsonl")
        texts = documents[:TEXTS]
        count = 2 * EACH // len(strangers)
        foreign = (text for other in strangers for text in _questions(collections[other], draw, count))
        queries = [*foreign, *_made_up(draw), *_mixed(texts, draw)]
        asked = [{"_id": f"{number:04}", "text": text} for number, text in enumerate(queries)]
        judged = {each["_id"]: [texts[0]["_id"]] for each in asked}
        write_folder(out / name, documents, asked, {"dev": judged})


def _questions(folder: Path, draw: random.Random, count: int) -> list[str]:
    texts = [each["text"] for each in read_records(folder / "queries.jsonl")]
    return draw.sample(texts, min(count, len(texts)))


def _made_up(draw: random.Random) -> Iterator[str]:
    for _ in range(EACH):
        words = (
            "".join(draw.choices(string.ascii_lowercase, k=draw.randint(4, 9)))
            for _ in range(draw.randint(2, 5))
        )
        yield " ".join(words)


def _mixed(texts: list[dict[str, str]], draw: random.Random) -> Iterator[str]:
    words = [word for text in texts for word in text["text"].split()[:40] if word.isalpha() and len(word) > 3]
    for _ in range(EACH):
        yield " ".join(draw.sample(words, draw.randint(3, 6)))


NONE_SHARE = 0.1
"""Fraction of queries without relevant documents in the data that calibration are fitted to."""
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Evidence of the first hits of all queries of a dataset, for probabilities."""

    signs: Doubles  # [hits, 3]
    answers: NDArray[np.bool_]  # [hits]
    queries: NDArray[np.int64]  # [hits], ascending
    is_first: NDArray[np.bool_]  # [hits]


def evidence_of(found: Candidates) -> NDArray[np.float32]:
    """The hybrid score of each candidate, float32 [m]."""
    weights = DEFAULT_FUSION.weights
    words = weights.lexical * found.openness * found.impacts * found.covered / found.scale
    return (weights.dense * found.cosine + words).astype(np.float32)


def hits_of(found: Candidates) -> Hits:
    """The first ten hits of every query."""
    evidence, signs, answers, queries, first = evidence_of(found), [], [], [], []
    for query, (start, stop) in enumerate(
        zip(found.starts[:-1].tolist(), found.starts[1:].tolist(), strict=True)
    ):
        here = slice(start, stop)
        ranked = start + np.lexsort((found.order[here], -evidence[here]))[:DEPTH]
        near = start + np.argsort(-found.cosine[here], kind="stable")[:HEAD]
        openness = uncertainty(found.head[query])
        signs.append(signs_of(evidence[ranked], evidence[near], openness, SHARPNESS))
        answers.append(found.grades[ranked] > 0)
        queries.append(np.full(len(ranked), query))
        first.append(np.arange(len(ranked)) == 0)
    return Hits(*(np.concatenate(each) for each in (signs, answers, queries, first)))


def _fit(answered: Sequence[Hits], nothing: Sequence[Hits]) -> Doubles:
    """Fits coefficients; datasets weigh the same, and unanswerable queries together have the weight `NONE_SHARE`."""
    hits, weights = [*answered, *nothing], []
    for each in answered:
        weights.append(np.full(len(each.answers), (1 - NONE_SHARE) / len(answered) / len(each.answers)))
    for each in nothing:
        weights.append(np.full(len(each.answers), NONE_SHARE / len(nothing) / len(each.answers)))
    signs = np.concatenate([each.signs for each in hits])
    return fit_logistic(signs, np.concatenate([each.answers for each in hits]), np.concatenate(weights))


def _likely(hits: Hits, fitted: Doubles) -> Doubles:
    likely: Doubles = 1 / (1 + np.exp(-(hits.signs @ fitted[:-1] + fitted[-1])))
    return likely


def _expected_error(likely: Doubles, answers: NDArray[np.bool_]) -> float:
    """Expected calibration error over ten bins of equal mass."""
    parts = np.array_split(np.argsort(likely, kind="stable"), 10)
    return float(sum(abs(likely[each].sum() - answers[each].sum()) for each in parts) / len(likely))


def calibrated(answered: Mapping[str, Hits], nothing: Mapping[str, Hits]) -> Calibration:
    """The calibration of all datasets together; says the expected error of left-out ones."""
    likely = []
    for name, hits in answered.items():
        others = [each for other, each in answered.items() if other != name]
        fitted = _fit(others, [each for other, each in nothing.items() if other != name])
        likely.append(_likely(hits, fitted))
    error = _expected_error(
        np.concatenate(likely), np.concatenate([each.answers for each in answered.values()])
    )
    say(f"left out, the error is {error:.4f}")
    fitted = _fit(list(answered.values()), list(nothing.values())).round(4)
    standing, evidence, openness, constant = fitted.tolist()
    return Calibration(
        sharpness=SHARPNESS, standing=standing, evidence=evidence, openness=openness, constant=constant,
    )  # fmt: skip


Data = Annotated[Path, given_folder("Holds a folder for each collection.")]
Work = Annotated[Path, given_folder("Folder of columns, those of `nothing` in its folder `nothing`.")]


def nothing_command(collections: Data, out: Annotated[Path, typer.Option(help="Where to write.")]) -> None:
    """Write queries that nothing answers."""
    write_nothing({folder.name: folder for folder in collections.iterdir()}, out)


def columns_command(
    collections: Data,
    indices: Annotated[Path, given_folder("Holds an index root for each collection.")],
    work: Annotated[Path, typer.Option(help="Where columns go.")],
    split: Annotated[str, typer.Option(help="Whose queries are searched.")] = "dev",
) -> None:
    """Search with both retrievers and keep what they say of each candidate."""
    with reporting():
        for folder in sorted(collections.iterdir()):
            path = work / f"{folder.name}.{split}.npz"
            say(f"{folder.name}: {gather(folder, indices / folder.name, path, split)} queries")


def calibrate_command(
    work: Work,
    model: Annotated[Path, given_folder("The model of the indices that were searched.")],
    out: Annotated[Path, typer.Option(help="Model folder to make, with the calibration.")],
) -> None:
    """Fit the calibration that a model ships with."""
    answered, nothing = (
        {path.name.removesuffix(".dev.npz"): hits_of(open_candidates(path)) for path in paths}
        for paths in (sorted(work.glob("*.dev.npz")), sorted((work / "nothing").glob("*.dev.npz")))
    )
    made = CalibratedFusion(weights=DEFAULT_FUSION.weights, calibration=calibrated(answered, nothing))
    with reporting():
        manifest = verify(model, "model")
        with write_artifact(out, "model") as writer:
            shutil.copytree(model, writer.folder, dirs_exist_ok=True)
            made.save(writer.folder / CALIBRATION_FILE)
            writer.parents, writer.parameters = manifest.parents, dict(manifest.parameters)
            writer.counts, writer.hashes = dict(manifest.counts), dict(manifest.hashes)
    say(made.model_dump_json(indent=1))


app = package_app(
    {"nothing": nothing_command, "columns": columns_command, "calibrate": calibrate_command},
    "Calibration of hybrid search.",
)

if __name__ == "__main__":
    app()
