"""Failure analysis: the queries that a system wins and loses most against a baseline, with the hits of both."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from glow.errors import InputError
from glow.evaluation.measures import evaluate, grades_by_query
from glow.evaluation.runs import Run
from glow.evaluation.task import Corpus, Task
from glow.records import Document

__all__ = ["Analysis", "Change", "Found", "analyse", "read_titles"]

# Length of the text that identifies a document without a title.
TITLE_LETTERS = 80


@dataclass(frozen=True, slots=True)
class Found:
    """A document shown for a query.

    Attributes:
        id: the document's id.
        title: its title, or the start of its text; empty if the corpus lacks it.
        grade: its grade; None if it is unjudged.
        baseline_rank, system_rank: its rank in each run, from 1; None if the run lacks it.
    """

    id: str
    title: str
    grade: int | None
    baseline_rank: int | None
    system_rank: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """One query and its results in both runs.

    Attributes:
        query_id, text: the query.
        baseline, system: values of the measure.
        relevant: its relevant documents, best grade first.
        baseline_first, system_first: the first hits of each run.
    """

    query_id: str
    text: str
    baseline: float
    system: float
    relevant: tuple[Found, ...]
    baseline_first: tuple[Found, ...]
    system_first: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """A comparison of a system with a baseline over one split.

    Attributes:
        measure: the compared measure.
        baseline, system: means over all judged queries.
        counts: numbers of queries won, lost and alike.
        won, lost: the queries with the largest differences, largest first.
    """

    measure: str
    baseline: float
    system: float
    counts: Mapping[Literal["won", "lost", "alike"], int]
    won: tuple[Change, ...]
    lost: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both runs with their queries and documents."""

    baseline: Run
    system: Run
    texts: Mapping[str, str]
    grades: Mapping[str, Mapping[str, int]]
    rel: int
    hits: int


def analyse(
    baseline: Run,
    system: Run,
    task: Task,
    corpus: Corpus,
    measure: str = "nDCG@10",
    rel: int = 1,
    top: int = 20,
    hits: int = 3,
) -> Analysis:
    """Finds the queries that differ most.

    Args:
        baseline: the baseline run.
        system: another run over the same queries.
        task: the judged queries.
        corpus: source of the titles.
        measure: one measure, as in `evaluate`.
        rel: lowest relevant grade.
        top: most queries of each kind, >= 0; equal differences keep the order of the judgments.
        hits: number of first hits of each run to show, >= 1.

    Raises:
        ConfigError: if the measure is unknown.
        InputError: if the corpus cannot be read, or holds none of the documents.
    """
    a, b = (evaluate(run, task.qrels, [measure], rel) for run in (baseline, system))
    before, after = a.values[measure], b.values[measure]
    differences = after - before
    won = [row for row in np.argsort(-differences, kind="stable") if differences[row] > 0][:top]
    lost = [row for row in np.argsort(differences, kind="stable") if differences[row] < 0][:top]
    texts = {query.id: query.text for query in task.queries}
    pair = _Pair(baseline, system, texts, grades_by_query(task.qrels), rel, hits)
    titles = read_titles(corpus, {name for row in (*won, *lost) for name in _named(pair, a.queries[row])})

    def changes(rows: Sequence[np.intp]) -> tuple[Change, ...]:
        return tuple(
            _change(pair, titles, a.queries[row], float(before[row]), float(after[row])) for row in rows
        )

    counts: dict[Literal["won", "lost", "alike"], int] = {
        "won": int((differences > 0).sum()),
        "lost": int((differences < 0).sum()),
        "alike": int((differences == 0).sum()),
    }
    return Analysis(measure, a.means[measure], b.means[measure], counts, changes(won), changes(lost))


def read_titles(corpus: Corpus, wanted: Collection[str]) -> dict[str, str]:
    """Document id -> title, or the start of the text without a title; only of the wanted documents.

    Raises:
        InputError: if the corpus cannot be read, or holds none of them.
    """
    titles = {document.id: _title(document) for document in corpus if document.id in wanted}
    if wanted and not titles:
        raise InputError(
            f"none of the {len(wanted)} documents to be shown is in {corpus.folder.name}/corpus.jsonl, "
            f"{min(wanted)!r} for one: give the --data that the runs were made with"
        )
    return titles


def _title(document: Document) -> str:
    fields = [document.fields.get("title", ()), document.fields.get("text", ()), *document.fields.values()]
    text = next((" ".join(value.split()) for values in fields for value in values if value.strip()), "")
    return text if len(text) <= TITLE_LETTERS else text[: TITLE_LETTERS - 1] + "…"


def _named(pair: _Pair, query_id: str) -> Iterator[str]:
    """The documents to show for a query."""
    yield from _relevant(pair, query_id)
    for run in (pair.baseline, pair.system):
        yield from (hit.document_id for hit in run.get(query_id, ())[: pair.hits])


def _relevant(pair: _Pair, query_id: str) -> list[str]:
    judged = sorted(pair.grades[query_id].items(), key=lambda item: -item[1])
    return [document for document, grade in judged if grade >= pair.rel]


def _change(pair: _Pair, titles: Mapping[str, str], query_id: str, baseline: float, system: float) -> Change:
    grades = pair.grades[query_id]
    ranks = [
        {hit.document_id: rank for rank, hit in enumerate(run.get(query_id, ()), start=1)}
        for run in (pair.baseline, pair.system)
    ]

    def found(documents: Sequence[str]) -> tuple[Found, ...]:
        return tuple(
            Found(name, titles.get(name, ""), grades.get(name), ranks[0].get(name), ranks[1].get(name))
            for name in documents
        )

    first = [found(list(rank)[: pair.hits]) for rank in ranks]
    relevant = found(_relevant(pair, query_id))
    return Change(query_id, pair.texts[query_id], baseline, system, relevant, first[0], first[1])
