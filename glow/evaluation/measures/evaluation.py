"""Measures of a run, named as in `ir-measures`, plus GLOW's NCG and ERR.

A run is measured in the retriever's order; trec_eval would sort equal scores by document id, which users never see.
Every judged query counts: one without hits scores 0, and so does one without a relevant document.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.errors import ConfigError, DependencyError, InputError
from glow.evaluation.measures.gains import ERR_MAX_GRADE, err, ncg
from glow.evaluation.runs import Run
from glow.records import Qrel

__all__ = [
    "DEFAULT_MEASURES", "MEASURE_SETS", "Evaluation", "check_measures", "evaluate", "grades_by_query",
    "measure_names",
]  # fmt: skip

DEFAULT_MEASURES = ("RR@10", "nDCG@10", "R@100", "NCG@10", "NCG@20", "NCG@50")
MEASURE_SETS = {
    "papers": tuple(
        "RR@10 RR@20 nDCG@1 nDCG@3 nDCG@10 NCG@10 NCG@20 NCG@50 R@100 P@20 ERR@20".split(),
    )
}
"""Names of sets of measures: `papers` is those of GLOW and BISON, and R@100."""
_NCG = re.compile(r"NCG@([1-9]\d{0,5})")
_ERR = re.compile(r"ERR(?:\(g_max=([1-9]|[1-5]\d)\))?@([1-9]\d{0,5})")
_HELP = f"try {' '.join(DEFAULT_MEASURES)}, P@5, Success@1, AP, ERR@20, ERR(g_max=3)@20"
Judge = Callable[[Sequence[str], Mapping[str, int]], float]
"""The value of one query, from its ranking and the grades of its documents."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Values of one run.

    Attributes:
        queries: ids of the judged queries, in the order of the judgments.
        values: measure name -> float64 [n], one value per query, in that order.
    """

    queries: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]

    @property
    def means(self) -> dict[str, float]:
        """Measure name -> mean over all judged queries; empty if there are none."""
        return {name: float(values.mean()) for name, values in self.values.items() if len(values)}

    @property
    def per_query(self) -> dict[str, dict[str, float]]:
        """Measure name -> query id -> value."""
        return {
            name: dict(zip(self.queries, values.tolist(), strict=True))
            for name, values in self.values.items()
        }

    def only(self, queries: Collection[str]) -> "Evaluation":
        """The values of some of the queries, in the same order."""
        rows = [row for row, query in enumerate(self.queries) if query in queries]
        kept = {name: values[rows] for name, values in self.values.items()}
        return Evaluation(tuple(self.queries[row] for row in rows), kept)


def measure_names(words: Sequence[str]) -> list[str]:
    """Splits requested measures, one or several in a string, and expands the names of sets."""
    names = [name for word in words for part in word.split() for name in MEASURE_SETS.get(part, (part,))]
    return list(dict.fromkeys(names))


def check_measures(names: Sequence[str], rel: int, depth: int | None = None) -> None:
    """Checks measures before the work that they will measure.

    Args:
        names: as `ir-measures` spells them, NCG@k, ERR@k or ERR(g_max=3)@k.
        rel: lowest relevant grade.
        depth: hits per query in the run; None if unknown.

    Raises:
        ConfigError: if a name is unknown, `rel` is below 1, or a cutoff is deeper than the run.
        DependencyError: if `ir-measures` is not installed.
    """
    if rel < 1:
        raise ConfigError(f"--rel must be at least 1, found {rel}")
    if not names:
        raise ConfigError(f"no measure was given; try {' '.join(DEFAULT_MEASURES)}")
    for name in names:
        own = _own(name)
        cutoff = own[0] if own else _parse(name, rel).params.get("cutoff")
        if depth is not None and cutoff is not None and cutoff > depth:
            raise ConfigError(f"{name} needs {cutoff} hits, and the run holds {depth}; raise --top-k")


def evaluate(
    run: Run, qrels: Sequence[Qrel], names: Sequence[str] = DEFAULT_MEASURES, rel: int = 1
) -> Evaluation:
    """Measures a run against relevance judgments.

    Args:
        run: hits of each query; unjudged queries are ignored.
        qrels: all judgments of a split.
        names: measures, as `ir-measures` spells them, NCG@k, ERR@k (of a scale up to 4) or ERR(g_max=3)@k.
        rel: lowest relevant grade, for measures that need one and do not name their own (RR, R, P, Success, AP, …);
            nDCG, NCG and ERR use the grades.

    Raises:
        ConfigError: as `check_measures`.
        InputError: if there are no judgments, or a grade is above ERR's g_max.
        DependencyError: if `ir-measures` is not installed.
    """
    check_measures(names, rel)
    grades = grades_by_query(qrels)
    if not grades:
        raise InputError("there are no judgments: the qrels are empty")
    names = list(dict.fromkeys(names))
    ranked = {query: [hit.document_id for hit in run.get(query, ())] for query in grades}
    values = _library_values(ranked, grades, [name for name in names if not _own(name)], rel)
    for name in names:
        if own := _own(name):
            values[name] = {query: own[1](ranked[query], grades[query]) for query in grades}
    arrays = {name: np.array([values[name][query] for query in grades], np.float64) for name in names}
    return Evaluation(tuple(grades), arrays)


def grades_by_query(qrels: Sequence[Qrel]) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade.

    Raises:
        InputError: if one document has two different grades for one query.
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


def _own(name: str) -> tuple[int, Judge] | None:
    """Cutoff and function of a measure of GLOW's own; None for the library's."""
    if match := _NCG.fullmatch(name):
        k = int(match[1])
        return k, lambda ranking, grades: ncg(ranking, grades, k)
    if match := _ERR.fullmatch(name):
        k, g_max = int(match[2]), int(match[1] or ERR_MAX_GRADE)
        return k, lambda ranking, grades: err(ranking, grades, k, g_max)
    return None


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
    # Descending integers keep the retriever's order when scores are sorted.
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
        if "rel" in measure.SUPPORTED_PARAMS and "rel" not in measure.params:
            measure = measure(rel=rel)
        # The library runs gdeval, a perl program, which may be missing and fails on unknown grades.
        providers = [provider for key, provider in library.providers.registry.items() if key != "gdeval"]
        known = any(provider.is_available() and provider.supports(measure) for provider in providers)
    except (NameError, ValueError, SyntaxError, TypeError, AssertionError) as error:
        raise ConfigError(f"unknown measure {name!r}: {error}; {_HELP}") from error
    if not known:
        raise ConfigError(f"measure {name!r} needs a program that is not installed; {_HELP}")
    return measure


def _ir_measures() -> Any:
    try:
        import ir_measures
    except ImportError as error:
        raise DependencyError(
            f"measures need ir-measures ({error}): pip install glow-retrieval[eval]"
        ) from error
    return ir_measures
