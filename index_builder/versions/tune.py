"""`glow tune`: chooses a fusion by judged queries, and adds a version with it and with its own probabilities.

The best of many settings looks better than it is, so the gain is cross-validated. Each fold of the queries is measured
with the setting that the other folds choose. The same queries calibrate the chosen fusion.

    q   queries     g   settings
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.artifact import CALIBRATION_FILE, IndexRoot
from glow.commands import IndexRootOptions, JsonOptions, command, option, say, write_report
from glow.errors import BusyError, InputError, MismatchError
from glow.evaluation import Difference, Task, compare, dcg, find_tasks, grades_by_query
from glow.index import (
    DEFAULT_FUSION,
    FUSION_FILE,
    CalibratedFusion,
    Calibration,
    Fusion,
    FusionWeights,
    Index,
    Ranking,
)
from glow.index.postings import POSTINGS
from glow.index.stored_fields import STORED_FIELDS
from glow.search import (
    DEFAULT_CANDIDATES,
    SHARPNESS,
    EncodedQuery,
    Fused,
    Scorer,
    analyze_query,
    fit_logistic,
    fuse_rankings,
    gather_hybrid,
    signs_of,
)
from glow_index_builder.versions.writer import derive

DEPTH = 10
"""Cutoff of nDCG."""
QUERIES_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False)
class JudgedQuery:
    """One query."""

    encoded: EncodedQuery  # the query as its tower read it
    grades: Mapping[int, int]  # row -> grade above 0 of the relevant documents in the index
    ideal: float  # DCG@10 of the best ranking of all judged documents, above 0


def judged_queries(index: Index, task: Task) -> list[JudgedQuery]:
    """The queries that have a word and a relevant document."""
    grades = grades_by_query(task.qrels)
    documents = sorted({document for judged in grades.values() for document in judged})
    places = ((document, index[STORED_FIELDS].find(document)) for document in documents)
    rows = {document: row for document, row in places if row is not None}
    relevant = [query for query in task.queries if max(grades[query.id].values()) > 0]
    readings = [(query.id, analyze_query(index, query.text)) for query in relevant]
    analyzed = [(name, reading) for name, reading in readings if reading.tokens.words]
    if len(analyzed) < 2 or not rows:
        raise InputError(
            f"{task.data}/qrels/{task.split}.tsv has {len(analyzed)} queries with a word and a relevant document, and "
            f"{len(rows)} of its documents are in the index; expected two queries or more, judged on this index"
        )
    queries = []
    for start in range(0, len(analyzed), QUERIES_AT_ONCE):
        block = analyzed[start : start + QUERIES_AT_ONCE]
        vectors = index.encoder.encode([reading.tokens for _, reading in block])
        for (name, reading), vector in zip(block, vectors, strict=True):
            judged = {document: grade for document, grade in grades[name].items() if grade > 0}
            ideal = dcg(sorted(judged.values(), reverse=True)[:DEPTH])
            here = {rows[document]: grade for document, grade in judged.items() if document in rows}
            queries.append(JudgedQuery(EncodedQuery(reading.text, vector), here, ideal))
    return queries


FOLDS = 5
STEPS = 20
RRF_KS = (10, 60)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates of both retrievers for one query."""

    dense: Ranking  # their candidates, best first
    lexical: Ranking
    rows: NDArray[np.int64]  # int64 [m] ascending, the distinct documents among them
    dense_scores: NDArray[np.float32] | None  # float32 [m], exact; None if the index cannot compute them
    lexical_scores: NDArray[np.float32]
    lexical_scale: float  # the largest impact of any term
    grades: Mapping[int, int]  # row -> grade above 0 of the relevant documents
    ideal: float  # DCG@10 of the best ranking of the judged documents; 0 if none is relevant
    covered: NDArray[np.float32] | None = None  # float32 [m], fraction of the query in each document; None: 1
    lexical_share: float = 1.0  # factor of the lexical weight

    def fuse(self, fusion: Fusion, order: NDArray[np.uint32] | None) -> Fused:
        """The ranking that a service would return."""

        def scorer(scores: NDArray[np.float32] | None) -> Scorer | None:
            return None if scores is None else lambda rows: scores[np.searchsorted(self.rows, rows)]

        return fuse_rankings(
            fusion,
            self.dense,
            self.lexical,
            order,
            scorer(self.dense_scores),
            scorer(self.lexical_scores),
            self.lexical_scale,
            score_covered=scorer(self.covered),
            lexical_share=self.lexical_share,
        )


@dataclass(frozen=True, slots=True)
class Tuned:
    """The chosen fusion and its gain; all values are means of nDCG@10 over the queries."""

    fusion: Fusion  # the best setting over all queries
    dense: float  # each retriever alone
    lexical: float
    default: float
    fitted: float  # the chosen setting on the queries that chose it, which overestimates it
    validated: float  # each fifth of the queries with the setting that the others chose
    gain: float  # validated - default; `low` and `high` are its 95 % interval (bootstrap over queries)
    low: float
    high: float
    queries: int  # number of queries, q

    def report(self) -> dict[str, Any]:
        """The result as JSON values."""
        values = {name: value for name, value in asdict(self).items() if name != "fusion"}
        return {"fusion": self.fusion.model_dump(), "nDCG@10": values}

    def summary(self) -> str:
        """The result in a few lines of text."""
        fusion = self.fusion
        k = f" k {fusion.k}," if fusion.method == "rrf" else ""
        chance = ", which may be chance" if self.low <= 0 <= self.high else ""
        return (
            f"{fusion.method},{k} weights dense {fusion.weights.dense:g}, lexical {fusion.weights.lexical:g}\n"
            f"nDCG@10 over {self.queries} queries: dense {self.dense:.3f}, lexical {self.lexical:.3f}, "
            f"default fusion {self.default:.3f}, this fusion {self.fitted:.3f}\n"
            f"on queries that did not choose it: {self.validated:.3f}, that is {self.gain:+.3f} over the default "
            f"(95 % interval {self.low:+.3f} to {self.high:+.3f}{chance})"
        )


def settings() -> list[Fusion]:
    """The grid, the default first; the first of equally good settings wins."""
    fusions = [DEFAULT_FUSION]
    for step in range(STEPS + 1):
        weights = FusionWeights(dense=step / STEPS, lexical=(STEPS - step) / STEPS)
        fusions.append(Fusion(method="convex", weights=weights))
        fusions += [Fusion(method="rrf", k=k, weights=weights) for k in RRF_KS]
    return fusions


def tune(
    queries: Sequence[Candidates],
    order: NDArray[np.uint32] | None,  # uint32 [n], each document's place in a tie
    seed: int = 0,
) -> Tuned:
    """Chooses the setting with the highest nDCG@10."""
    grid = settings()
    values = np.array([[ndcg(query.fuse(fusion, order).rows, query) for query in queries] for fusion in grid])
    chosen, validated, gain = cross_validated(values, seed)
    return Tuned(
        fusion=grid[chosen],
        dense=float(np.mean([ndcg(query.dense[1], query) for query in queries])),
        lexical=float(np.mean([ndcg(query.lexical[1], query) for query in queries])),
        default=float(values[0].mean()),
        fitted=float(values[chosen].mean()),
        validated=float(validated.mean()),
        gain=gain.difference,
        low=gain.low,
        high=gain.high,
        queries=len(queries),
    )


def ndcg(rows: NDArray[np.int64], query: Candidates) -> float:
    """nDCG@10 with grades as gains, in [0, 1]; 0 if no document is relevant (Järvelin and Kekäläinen 2002)."""
    if query.ideal == 0.0:
        return 0.0
    return dcg([query.grades.get(row, 0) for row in rows[:DEPTH].tolist()]) / query.ideal


def best_setting(values: NDArray[np.float64]) -> int:
    """The first setting with the highest mean; differences below a millionth count as rounding."""
    return int(np.argmax(np.round(values.mean(axis=1), 6)))


def cross_validated(
    values: NDArray[np.float64],  # nDCG@10, float64 [g, q]
    seed: int,
) -> tuple[int, NDArray[np.float64], Difference]:
    """The best setting, each query's cross-validated value, float64 [q], and the comparison with the first setting."""
    folds = np.random.default_rng(seed).permutation(values.shape[1]) % FOLDS
    validated = np.empty(values.shape[1])
    for fold in np.unique(folds):
        here = folds == fold
        validated[here] = values[best_setting(values[:, ~here]), here]
    return best_setting(values), validated, compare(values[0], validated, seed=seed)


LEAST_QUERIES = 100
"""Fewer queries do not determine three coefficients."""


def calibrate(
    queries: Sequence[Candidates],
    fusion: Fusion,
    order: NDArray[np.uint32] | None,  # uint32 [n], each document's place in a tie
) -> CalibratedFusion | None:
    """Maps a fusion's scores to probabilities; none of ranks, or without enough queries or relevant hits in the top ten."""
    if fusion.method != "convex" or len(queries) < LEAST_QUERIES:
        return None
    signs, answers = [], []
    for query in queries:
        fused = query.fuse(fusion, order)
        if fused.head is None or not len(fused.rows):
            continue
        signs.append(signs_of(fused.scores[:DEPTH], fused.head, fused.openness, SHARPNESS))
        answers.append(np.array([row in query.grades for row in fused.rows[:DEPTH].tolist()]))
    if not any(each.any() for each in answers):
        return None
    table, right = np.concatenate(signs), np.concatenate(answers)
    fitted = fit_logistic(table, right, np.ones(len(right)))
    if fitted[0] + fitted[1] == 0:
        return None  # the evidence does not discriminate here
    names = ("standing", "evidence", "openness", "constant")
    coefficients = dict(zip(names, map(float, fitted), strict=True))
    calibration = Calibration(sharpness=SHARPNESS, **coefficients)
    return CalibratedFusion(weights=fusion.weights, calibration=calibration)


class TuneOptions(JsonOptions, IndexRootOptions):
    """What to tune, and with which queries."""

    version: str | None = option(
        None, "Version name; default: the live one.", is_argument=True, metavar="[VERSION]"
    )
    data: Path = option(..., "Data directory with queries.jsonl and qrels/SPLIT.tsv.", metavar="DIR")
    split: str = option(..., "Split of the relevance judgments, qrels/SPLIT.tsv.")
    candidates: int = option(
        DEFAULT_CANDIDATES, "Hits of each retriever to fuse; as many as searches gather.", ge=DEPTH
    )
    publish: bool = option(True, "Make the new version live.")
    seed: int = option(0, "Random seed.", ge=0)


@command(TuneOptions)
def tune_command(options: TuneOptions) -> None:
    """Fits the fusion of hybrid search to judged queries, and adds a version with the result."""
    root = IndexRoot(options.index_root)
    source = options.version or root.current()
    index = Index.open(root.folder(source))
    task = find_tasks(options.data, [options.split])[0]
    if not index.holds(POSTINGS):
        raise MismatchError(
            f"version {index.version} holds no lexical index to fuse with; build it with --lexical"
        )
    queries = [candidates_of(index, query, options.candidates) for query in judged_queries(index, task)]
    tuned = tune(queries, index.order, options.seed)
    calibration = calibrate(queries, tuned.fusion, index.order)
    source_of = {"data": task.data, "split": task.split, "queries": tuned.queries}
    with root.locked():
        if options.publish and options.version is None and root.current() != source:
            raise BusyError(
                f"{root.current()} was published in place of {source} while it was tuned, and what is in it would be lost; nothing was "
                "changed: tune again"
            )
        parameters = {"tuning": {"fusion": tuned.fusion.model_dump(), **source_of}}
        version = derive(root, source, {}, parameters, lambda folder: _store(folder, tuned, calibration))
        if options.publish:
            root.publish(version)
    report = {
        "status": "tuned",
        "version": version,
        "tuned_version": source,
        "published": options.publish,
        "calibrated": calibration is not None,
        **tuned.report(),
    }
    write_report(options.json_file, report)
    say(f"{tuned.summary()}\n{'published' if options.publish else 'made'} {version} from {source}")


def candidates_of(index: Index, query: JudgedQuery, k: int) -> Candidates:
    """The candidates that a hybrid search of one query fuses, gathered as a service does."""
    _, gathered = gather_hybrid(index, query.encoded, k)
    union = np.union1d(gathered.dense[1], gathered.lexical[1])
    return Candidates(
        dense=gathered.dense,
        lexical=gathered.lexical,
        rows=union,
        dense_scores=gathered.score_dense(union) if gathered.score_dense else None,
        lexical_scores=gathered.score_lexical(union),
        covered=gathered.score_covered(union) if gathered.score_covered else None,
        lexical_share=gathered.lexical_share,
        lexical_scale=gathered.lexical_scale,
        grades=query.grades,
        ideal=query.ideal,
    )


def _store(folder: Path, tuned: Tuned, calibration: CalibratedFusion | None) -> None:
    """Replaces files that may be hard links to the older version's, which must not change."""
    if calibration is not None:
        (folder / CALIBRATION_FILE).unlink(missing_ok=True)
        calibration.save(folder / CALIBRATION_FILE)
    (folder / FUSION_FILE).unlink(missing_ok=True)
    tuned.fusion.save(folder / FUSION_FILE)
