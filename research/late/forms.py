"""Late interaction's columns for the candidates of a collection, in one form of keeping tokens after another.

m   candidates of all queries
"""

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER
from glow.evaluation import Corpus, find_tasks
from glow.runtime import Encoder, Model
from glow.text import WeightedTokens
from research.candidates import Candidates
from research.late.collections import SEED
from research.late.states import encode_states, open_states, with_states
from research.late.tokens import (
    QUERY_WEIGHTS,
    Form,
    Projection,
    best_matches,
    fit_projection,
    keep,
    read_back,
    weigh,
)

__all__ = ["FORMS", "PROJECTION", "REFERENCE", "column", "fit", "load_projection", "make_columns", "sizes"]

REFERENCE = Form(specials=False)
FORMS = (
    Form(),
    REFERENCE,
    Form(specials=False, lexical=True),
    *(Form(size, 1, 0, False) for size in (64, 96, 128, 192)),
    Form(64, 2, 0, False),
    Form(96, 2, 0, False),
    Form(192, 32, 0, False),
    Form(192, 32, 48, False),
    *(Form(size, 1, 48, False) for size in (96, 128, 192)),
    Form(192, 1, 32, False),
    Form(192, 1, 64, False),
    Form(128, 1, 0.5, False),
    Form(192, 1, 0.5, False),
    *(Form(size, 1, 0, False, lexical=True) for size in (96, 128, 192)),
    Form(128, 1, 48, False, lexical=True),
    Form(128, 1, 48),
)
"""Floats, signs and two bits of every token, tokens pooled to a budget or by a half, tokens of lexical words."""
TRAINED = ("tldr", "medquad")
TRAIN_QUERIES, TRAIN_DOCUMENTS = 2000, 1000
PROJECTION = "projection.npz"
Floats = NDArray[np.float32]


def fit(data: Path, model: Model, work: Path) -> None:
    """Fits the projection to training queries, and to documents that answer some of them, of tldr and medquad.

    Args:
        data: holds the two.
        model: whose towers make the states.
        work: where states go, and the projection.
    """
    generator = random.Random(SEED)  # noqa: S311
    towers = with_states(model.folder, work / "model")
    preprocessor = model.preprocessor
    queries: list[WeightedTokens] = []
    documents: list[WeightedTokens] = []
    for name in TRAINED:
        task = find_tasks(data / name, ["train"])[0]
        queries += [
            preprocessor.query(each.text) for each in generator.sample(list(task.queries), TRAIN_QUERIES)
        ]
        relevant = {each.document_id for each in task.qrels if each.grade > 0}
        found = [each for each in Corpus(data / name, preprocessor.schema.names) if each.id in relevant]
        documents += [preprocessor.document(each) for each in generator.sample(found, TRAIN_DOCUMENTS)]
    sides: list[list[Floats]] = []
    for tower, texts in ((DOCUMENT_TOWER, documents), (QUERY_TOWER, queries)):
        folder = work / "train" / tower
        encode_states(Encoder(towers / tower, preprocessor.pieces.pad_id, batch_tokens=512), texts, folder)
        store = open_states(folder)
        sides.append([store[row].states for row in range(len(texts))])
    projection = fit_projection(*sides)
    np.savez(work / PROJECTION, directions=projection.directions, deviations=projection.deviations)


def load_projection(work: Path) -> Projection:
    """What `fit` wrote."""
    with np.load(work / PROJECTION) as file:
        return Projection(file["directions"], file["deviations"])


def make_columns(form: Form, candidates: Candidates, projection: Projection, work: Path) -> None:
    """Writes late interaction's score of every candidate, by every weighting of the query's tokens."""
    documents, queries = (open_states(work / candidates.name / side) for side in ("documents", "queries"))
    kept = {row: keep(form, projection, documents[row]) for row in np.unique(candidates.rows).tolist()}
    found: dict[str, list[Floats]] = {}
    for at in range(len(candidates)):
        rows = candidates.rows[candidates.starts[at] : candidates.starts[at + 1]].tolist()
        tokens = [kept[row] for row in rows]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in tokens])[:-1]]).astype(np.int64)
        query = queries[at]
        matches = best_matches(
            read_back(form, projection, np.concatenate(tokens)), starts, projection(query.states, form.size)
        )
        weights = queries.weights[queries.starts[at] : queries.starts[at + 1]]
        for (name, power), specials in product(QUERY_WEIGHTS.items(), (True, False)):
            score = weigh(matches, weights, query.specials, power, specials)
            found.setdefault(_key(name, specials), []).append(score)
    columns: dict[str, Any] = {key: np.concatenate(each) for key, each in found.items()}
    np.savez(_path(form, candidates.name, work), **columns)


def column(form: Form, name: str, work: Path, weighting: str = "equal", specials: bool = True) -> Floats:
    """A column of `make_columns`, float32 [m]."""
    with np.load(_path(form, name, work)) as file:
        found: Floats = file[_key(weighting, specials)]
        return found


def sizes(form: Form, names: Sequence[str], work: Path) -> float:
    """Bytes a document, the mean over the collections' means."""
    means = []
    for name in names:
        store = open_states(work / name / "documents")
        counts = [form.chosen(store[row]).sum() for row in range(len(store.starts) - 1)]
        means.append(float(form.bytes_of(np.array(counts)).mean()))
    return float(np.mean(means))


def _key(weighting: str, specials: bool) -> str:
    return f"{weighting}{'' if specials else '-words'}"


def _path(form: Form, name: str, work: Path) -> Path:
    return work / name / f"late-{form.name}.npz"
