"""Runs: the hits of a retriever for each query, in memory and as TREC run files.

A line of a TREC run is `query-id Q0 document-id rank score tag`, separated by white space. The score decides the
order, as in trec_eval. Equal scores are ordered by rank; trec_eval would use the document id.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from glow.errors import InputError, RecordError
from glow.records import Hit

Run = Mapping[str, Sequence[Hit]]
"""Query id -> hits, best first, without duplicates."""


def write_run(path: Path, run: Run, tag: str) -> None:
    """Writes or replaces a TREC run file; scores keep every digit, and white space in the tag becomes `_`."""
    tag = "_".join(tag.split()) or "run"
    try:
        with path.open("w", encoding="utf-8") as file:
            for query_id, hits in run.items():
                for rank, hit in enumerate(hits, start=1):
                    document_id = _word(hit.document_id)
                    file.write(f"{_word(query_id)} Q0 {document_id} {rank} {hit.score!r} {tag}\n")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def _word(identifier: str) -> str:
    if not identifier or identifier.split() != [identifier]:
        raise RecordError(f"a TREC run cannot hold the id {identifier!r}: ids must be without white space")
    return identifier


def read_run(path: Path) -> Run:
    """Reads a TREC run file; malformed lines and repeated documents of a query are refused."""
    rankings: dict[str, dict[str, tuple[float, int]]] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for query_id, document_id, score, rank in _rows(path.name, file):
                hits = rankings.setdefault(query_id, {})
                if document_id in hits:
                    raise RecordError(f"{path.name}: query {query_id} has document {document_id} twice")
                hits[document_id] = (score, rank)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path.name} is not a TREC run: not UTF-8") from error
    return {query_id: _ranked(hits) for query_id, hits in rankings.items()}


def _ranked(hits: Mapping[str, tuple[float, int]]) -> list[Hit]:
    order = sorted(hits.items(), key=lambda item: (-item[1][0], item[1][1]))
    return [Hit(document_id, score) for document_id, (score, _) in order]


def _rows(name: str, lines: Iterator[str]) -> Iterator[tuple[str, str, float, int]]:
    for number, line in enumerate(lines, start=1):
        columns = line.split()
        if not columns:
            continue
        try:
            query_id, _, document_id, rank, score, _ = columns
            row = (query_id, document_id, float(score), int(rank))
        except ValueError as error:
            raise RecordError(
                f"{name} line {number}: expected `query-id Q0 document-id rank score tag`, found {line.strip()!r:.120}"
            ) from error
        if math.isnan(row[2]):
            raise RecordError(f"{name} line {number}: the score is not a number")
        yield row
