"""Documents with clicked queries of another origin, and a corpus of both: the controls of docs/results/clicks.md.

python -m research.clicks.controls merge   --corpus CORPUS.jsonl --documents OUT/documents.jsonl --out FILE
python -m research.clicks.controls shuffle --documents OUT/documents.jsonl --corpus CORPUS.jsonl --out FILE
python -m research.clicks.controls truth   --data $DATA/tldr --out FILE
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from glow.collection import read_qrels, read_queries

FIELD, MOST = "clicked_queries", 5


def main() -> None:
    """Writes a corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("merge", "shuffle", "truth"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--documents", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    corpus = _lines(options.corpus or options.data / "corpus.jsonl")
    if options.what == "truth":
        changed = _true(options.data, corpus)
    else:
        changed = {line["_id"]: line[FIELD] for line in _lines(options.documents)}
    if options.what == "shuffle":
        changed = _shuffled(changed, corpus)
    for line in corpus:
        line[FIELD] = changed.get(line["_id"], line.get(FIELD, []))
    options.out.write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in corpus), encoding="utf-8"
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _shuffled(changed: dict[str, list[str]], corpus: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The new queries of each document go to another one of those that got some; what it had stays."""
    had = {line["_id"]: set(line.get(FIELD, [])) for line in corpus}
    ids = sorted(changed)
    other = np.random.default_rng(0).permutation(len(ids))
    return {
        identifier: ([q for q in changed[ids[place]] if q not in had[ids[place]]] + sorted(had[identifier]))[
            :MOST
        ]
        for identifier, place in zip(ids, other, strict=True)
    }


def _true(data: Path, corpus: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Train questions of each document, in the order of a seeded shuffle, before what it had."""
    texts = {query.id: query.text.lower() for query in read_queries(data / "queries.jsonl")}
    of_document: defaultdict[str, list[str]] = defaultdict(list)
    rows = list(read_qrels(data / "qrels" / "train.tsv"))
    for place in np.random.default_rng(0).permutation(len(rows)):
        of_document[rows[place].document_id].append(texts[rows[place].query_id])
    had = {line["_id"]: line.get(FIELD, []) for line in corpus}
    return {
        key: list(dict.fromkeys((*queries, *had.get(key, []))))[:MOST] for key, queries in of_document.items()
    }


if __name__ == "__main__":
    main()
