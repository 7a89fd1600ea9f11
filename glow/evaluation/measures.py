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
from glow.evaluation.runs import Run
from glow.records import Qrel

DEFAULT_MEASURES = ("RR@10", "nDCG@10", "R@100", "NCG@10", "NCG@20", "NCG@50")
MEASURE_SETS = {
    "papers": tuple(
        "RR@10 RR@20 nDCG@1 nDCG@3 nDCG@10 NCG@10 NCG@20 NCG@50 R@100 P@20 ERR@20".split(),
    )
}
"""Names of sets of measures: `papers` is those of GLOW and BISON, and R@100."""
ERR_MAX_GRADE = 4
"""g_max of gdeval.pl, the program that measured the TREC Web tracks and their published figures."""
_NCG = re.compile(r"NCG@([1-9]\d{0,5})")
_ERR = re.compile(r"ERR(?:\(g_max=([1-9]|[1-5]\d)\))?@([1-9]\d{0,5})")
_HELP = f"try {' '.join(DEFAULT_MEASURES)}, P@5, Success@1, AP, ERR@20, ERR(g_max=3)@20"
Judge = Callable[[Sequence[str], Mapping[str, int]], float]
"""The value of one query, from its ranking and the grades of its documents."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Values of one run."""

    queries: tuple[str, ...]  # ids of the judged queries, in the order of the judgments
    values: Mapping[str, NDArray[np.float64]]  # measure name -> [n], one value per query, in that order

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
        values = {name: values[rows] for name, values in self.values.items()}
        return Evaluation(tuple(self.queries[row] for row in rows), values)


def measure_names(words: Sequence[str]) -> list[str]:
    """Splits requested measures, one or several in a string, and expands the names of sets."""
    names = [name for word in words for part in word.split() for name in MEASURE_SETS.get(part, (part,))]
    return list(dict.fromkeys(names))


def check_measures(names: Sequence[str], rel: int, depth: int | None = None) -> None:
    """Refuses unknown measures, a `rel` below 1, and cutoffs deeper than the run (`depth` hits a query; None: unknown)."""
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
    run: Run,  # hits of each query; unjudged queries are ignored
    qrels: Sequence[Qrel],  # all judgments of a split
    names: Sequence[str] = DEFAULT_MEASURES,  # as `ir-measures` spells them, NCG@k, ERR@k or ERR(g_max=3)@k
    rel: int = 1,
) -> Evaluation:
    """Measures a run against relevance judgments.

    `rel` is the lowest relevant grade, for measures that need one and do not name their own (RR, R, P, Success, AP, …).
    nDCG, NCG and ERR use the grades.
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
    """Query id -> document id -> grade; two grades of one document for one query are refused."""
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
        library.ScoredDoc(q, d, float(-rank)) for q, hits in ranked.items() for rank, d in enumerate(hits)
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


def err(ranking: Sequence[str], grades: Mapping[str, int], k: int, g_max: int = ERR_MAX_GRADE) -> float:
    """ERR@k of one query, in [0, 1): the expected reciprocal rank at which a user who reads down the list is satisfied.

    Chapelle, Metzler, Zhang and Grinspan, CIKM 2009 (https://doi.org/10.1145/1645953.1646033). A document of grade g
    satisfies with probability R(g) = (2^g - 1) / 2^g_max, and

        ERR@k = sum over r = 1 … k of 1/r · R(g_r) · product over i < r of (1 - R(g_i)).

    g_max is the highest grade of the scale, not of the query. The value is not divided by the best possible one: with
    grades 0 and 1 and g_max 4, twenty relevant hits give ERR@20 = .176. A repeated document counts only at its first
    rank; unjudged documents and negative grades count as 0.
    """
    if k < 1 or g_max < 1:
        raise ValueError(f"k and g_max must be at least 1, found {k} and {g_max}")
    highest = max(grades.values(), default=0)
    if highest > g_max:
        raise InputError(
            f"ERR@{k} expects grades up to {g_max}, found grade {highest}: use ERR(g_max={highest})@{k}"
        )
    value, still_reading = 0.0, 1.0
    seen: set[str] = set()
    for rank, document in enumerate(ranking[:k], start=1):
        grade = 0 if document in seen else max(grades.get(document, 0), 0)
        seen.add(document)
        satisfied = (2**grade - 1) / 2**g_max
        value += still_reading * satisfied / rank
        still_reading *= 1.0 - satisfied
    return value


def ncg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """NCG@k of one query, in [0, 1]: the gain of the first k hits, in any order, relative to the best possible gain.

    GLOW section 4.2.1, Eq. 11-12 (https://arxiv.org/abs/2007.05186): NCG = CG / iCG, where CG is the sum of the grades
    of the first k hits and iCG that of the k best judged documents. A later ranking stage sets the order, so only the
    set of documents that the first stage passes on counts. It is 0 if no document has a grade above 0, as in
    `ir-measures` for nDCG.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, found {k}")
    ideal = sum(sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:k])
    if ideal == 0:
        return 0.0
    return sum(max(grades.get(document, 0), 0) for document in set(ranking[:k])) / ideal


def dcg(gains: Sequence[int]) -> float:
    """Sum of the gains, each divided by the binary logarithm of its rank + 1."""
    return float(sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, start=1) if gain))


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """nDCG@k in [0, 1]; 0 if no document is relevant; grades below 0 count as 0.

    Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques", with grades as gains and
    log2(rank + 1) as discount, as in `ir-measures`; written here because building an index must not need that package.
    """
    ideal = dcg(sorted((max(grade, 0) for grade in grades.values()), reverse=True)[:k])
    return dcg([max(grades.get(document, 0), 0) for document in ranking[:k]]) / ideal if ideal else 0.0
