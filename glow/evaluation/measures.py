"""Measures of a run, in the names of `ir-measures`, with our NCG beside them.

A run is measured in the order in which the retriever returned it; trec_eval would sort equal scores anew by document
id, which is no order that a user ever sees. Every query of the judgements counts: one without hits scores 0, and so
does one without a relevant document.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import ConfigError, DependencyError, InputError
from glow.evaluation.ncg import ncg
from glow.evaluation.runs import Run
from glow.records import Qrel

__all__ = ["DEFAULT_MEASURES", "Evaluation", "check_measures", "evaluate", "grades_by_query"]

DEFAULT_MEASURES = ("RR@10", "nDCG@10", "R@100", "NCG@10", "NCG@20", "NCG@50")
_NCG = re.compile(r"NCG@([1-9]\d{0,5})")


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Values of one run.

    Attributes:
        queries: ids of the judged queries, in the order of the judgements.
        values: measure name -> float64 [n], one value a query, in that order.
    """

    queries: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]

    @property
    def means(self) -> dict[str, float]:
        """Measure name -> mean over all judged queries."""
        return {name: float(values.mean()) for name, values in self.values.items()}

    @property
    def per_query(self) -> dict[str, dict[str, float]]:
        """Measure name -> query id -> value."""
        return {
            name: dict(zip(self.queries, values.tolist(), strict=True))
            for name, values in self.values.items()
        }


def check_measures(names: Sequence[str], rel: int, depth: int | None = None) -> None:
    """Checks measures before the work whose result they shall measure.

    Args:
        names: as `ir-measures` spells them, or NCG@k.
        rel: lowest relevant grade.
        depth: hits a query that the run will hold; None where that is not known.

    Raises:
        ConfigError: an unknown name, a `rel` below 1, or a cut-off deeper than the run.
        DependencyError: `ir-measures` is not installed.
    """
    if rel < 1:
        raise ConfigError(f"--rel must be at least 1, found {rel}")
    if not names:
        raise ConfigError(f"no measure was asked for; try {' '.join(DEFAULT_MEASURES)}")
    for name in names:
        match = _NCG.fullmatch(name)
        cutoff = int(match[1]) if match else _parse(name, rel).params.get("cutoff")
        if depth is not None and cutoff is not None and cutoff > depth:
            raise ConfigError(f"{name} looks at {cutoff} hits, and the run holds {depth}; raise --top-k")


def evaluate(
    run: Run, qrels: Sequence[Qrel], names: Sequence[str] = DEFAULT_MEASURES, rel: int = 1
) -> Evaluation:
    """Measures a run against judgements.

    Args:
        run: hits of each query; queries that are not judged are passed over.
        qrels: all judgements of a split.
        names: measures, as `ir-measures` spells them, or NCG@k.
        rel: lowest grade that is relevant, for each measure that knows such a level and does not name its own
            (RR, R, P, Success, AP, …); nDCG and NCG take the grades as gains.

    Raises:
        ConfigError: as `check_measures`.
        InputError: there is no judgement.
        DependencyError: `ir-measures` is not installed.
    """
    check_measures(names, rel)
    grades = grades_by_query(qrels)
    if not grades:
        raise InputError("there is no judgement to measure by: the qrels are empty")
    names = list(dict.fromkeys(names))
    ranked = {query: [hit.document_id for hit in run.get(query, ())] for query in grades}
    values = _library_values(ranked, grades, [name for name in names if not _NCG.fullmatch(name)], rel)
    for name in names:
        if match := _NCG.fullmatch(name):
            values[name] = {query: ncg(ranked[query], grades[query], int(match[1])) for query in grades}
    arrays = {name: np.array([values[name][query] for query in grades], np.float64) for name in names}
    return Evaluation(tuple(grades), arrays)


def grades_by_query(qrels: Sequence[Qrel]) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade.

    Raises:
        InputError: one document has two different grades for one query.
    """
    grades: dict[str, dict[str, int]] = {}
    for qrel in qrels:
        judged = grades.setdefault(qrel.query_id, {})
        if judged.setdefault(qrel.document_id, qrel.grade) != qrel.grade:
            raise InputError(
                f"query {qrel.query_id} grades document {qrel.document_id} as "
                f"{judged[qrel.document_id]} and as {qrel.grade}; keep one"
            )
    return grades


def _library_values(
    ranked: Mapping[str, Sequence[str]],
    grades: Mapping[str, Mapping[str, int]],
    names: Sequence[str],
    rel: int,
) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = {name: dict.fromkeys(grades, 0.0) for name in names}
    if not names:
        return values
    library = _ir_measures()
    measures = {name: _parse(name, rel) for name in names}
    judged = [library.Qrel(q, d, grade) for q, documents in grades.items() for d, grade in documents.items()]
    # Descending whole numbers keep the retriever's order through any sorting by score.
    scored = [
        library.ScoredDoc(q, d, float(-rank)) for q, found in ranked.items() for rank, d in enumerate(found)
    ]
    for metric in library.iter_calc(list(set(measures.values())), judged, scored):
        for name, measure in measures.items():
            if metric.measure == measure:
                values[name][metric.query_id] = float(metric.value)
    return values


def _parse(name: str, rel: int) -> Any:
    library = _ir_measures()
    try:
        measure = library.parse_measure(name)
    except (NameError, ValueError, SyntaxError, TypeError) as error:
        raise ConfigError(
            f"unknown measure {name!r}: {error}; try {' '.join(DEFAULT_MEASURES)}, P@5, Success@1, AP"
        ) from error
    if "rel" in measure.SUPPORTED_PARAMS and "rel" not in measure.params:
        return measure(rel=rel)
    return measure


def _ir_measures() -> Any:
    try:
        import ir_measures
    except ImportError as error:
        raise DependencyError(
            f"measures need ir-measures ({error}): pip install glow-retrieval[eval]"
        ) from error
    return ir_measures
