"""Controls of docs/results/quality.md: documents with clicked queries from other sources, and true pairs."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from glow.collection import read_qrels, read_queries
from research.folders import Record, read_records, write_folder, write_lines

__all__ = ["learned_queries", "shuffled", "true_pairs", "true_queries", "write_corpus"]

FIELD, MOST = "clicked_queries", 5
Queries = Mapping[str, Sequence[str]]


def learned_queries(documents: Path) -> Queries:
    """Document -> clicked queries, from `documents.jsonl` of `glow learn-clicks`."""
    return {line["_id"]: line[FIELD] for line in read_records(documents)}


def shuffled(learned: Queries, corpus: Sequence[Record]) -> Queries:
    """Moves the new queries of each document to another one that got some; former queries stay."""
    had = {line["_id"]: set(line.get(FIELD, [])) for line in corpus}
    ids = sorted(learned)
    other = np.random.default_rng(0).permutation(len(ids))
    return {
        name: ([q for q in learned[ids[place]] if q not in had[ids[place]]] + sorted(had[name]))[:MOST]
        for name, place in zip(ids, other, strict=True)
    }


def true_queries(data: Path, corpus: Sequence[Record]) -> Queries:
    """Train questions of each document in seeded random order, before its former queries."""
    texts = {query.id: query.text.lower() for query in read_queries(data / "queries.jsonl")}
    of_document: defaultdict[str, list[str]] = defaultdict(list)
    rows = list(read_qrels(data / "qrels" / "train.tsv"))
    for place in np.random.default_rng(0).permutation(len(rows)):
        of_document[rows[place].document_id].append(texts[rows[place].query_id])
    had = {line["_id"]: line.get(FIELD, []) for line in corpus}
    return {
        key: list(dict.fromkeys((*queries, *had.get(key, []))))[:MOST] for key, queries in of_document.items()
    }


def write_corpus(corpus: Sequence[Record], queries: Queries, out: Path) -> None:
    """Writes the documents with these queries instead of their own; other documents keep theirs."""
    lines = ({**line, FIELD: queries.get(line["_id"], line.get(FIELD, []))} for line in corpus)
    write_lines(out, (json.dumps(line, ensure_ascii=False) for line in lines))


def true_pairs(data: Path, like: Path, out: Path, seed: int) -> None:
    """Writes a data directory with as many of tldr's train questions as `like` has, to train on instead of clicks."""
    of_query: defaultdict[str, list[str]] = defaultdict(list)
    for row in read_qrels(data / "qrels" / "train.tsv"):
        of_query[row.query_id].append(row.document_id)
    wanted = len({row.query_id for row in read_qrels(like / "qrels" / "train.tsv")})
    chosen = np.random.default_rng(seed).permutation(sorted(of_query))[:wanted].tolist()
    kept = [line for line in read_records(data / "queries.jsonl") if line["_id"] in set(chosen)]
    judged = {query: of_query[query] for query in chosen}
    write_folder(out, read_records(like / "corpus.jsonl"), kept, {"train": judged})
