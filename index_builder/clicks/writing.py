"""Writes the result of learning: documents with clicked queries for the index, pairs and negatives for training."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from glow.artifact import disk_error
from glow.negatives import Header, Negative, QueryNegatives, documents_hash, write_negatives
from glow.records import Document
from glow_index_builder.clicks.learning import Learned, Pair

__all__ = ["FIELD", "write_documents", "write_training"]

FIELD = "clicked_queries"
NEGATIVES_FILE = "negatives.jsonl"
KIND = "clicks"


def write_documents(
    path: Path, documents: Iterable[Document], pairs: Sequence[Pair], most: int
) -> tuple[int, int]:
    """Writes the documents whose clicked queries changed, as input of `glow upsert`.

    Queries with the most users come first, then those that the document had, at most as many as its model reads.

    Args:
        path: the file.
        documents: the index's documents.
        pairs: the learned pairs.
        most: most clicked queries per document.

    Returns:
        The number of documents written, and of new clicked queries in them.

    Raises:
        DiskError: if the file cannot be written.
    """
    wanted: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        wanted[pair.id].append(pair)
    changed = new = 0

    def lines() -> Iterator[dict[str, Any]]:
        nonlocal changed, new
        for document in documents:
            found = sorted(
                wanted.get(document.id, ()), key=lambda pair: (-pair.users, -pair.rate, pair.query)
            )
            before = document.fields.get(FIELD, ())
            queries = tuple(dict.fromkeys((*(pair.query for pair in found), *before)))[:most]
            if found and queries != before[:most]:
                changed += 1
                new += len(set(queries) - set(before))
                yield _line(document, {**document.fields, FIELD: queries})

    _write_lines(path, lines())
    return changed, new


def write_training(
    folder: Path, documents: Sequence[Document], learned: Learned, dev_share: float, seed: int
) -> dict[str, int]:
    """Writes pairs in BEIR's layout, and their hard negatives, for `glow train`.

    Documents are written without the new clicked queries; with them, each pair would match by its own text.

    Args:
        folder: gets `corpus.jsonl`, `queries.jsonl`, `qrels/train.tsv`, `qrels/dev.tsv` and `negatives.jsonl`.
        documents: the index's documents.
        learned: the result of learning.
        dev_share: fraction of the queries that go to dev, chosen by a hash of the text.
        seed: of that hash.

    Returns:
        `queries` and `pairs` of train, `dev_queries`, and `negatives`.

    Raises:
        DiskError: if a file cannot be written.
        InputError: if the negatives cannot be.
    """
    known = {document.id for document in documents}
    by_query: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in learned.pairs:
        if pair.id in known:
            by_query[pair.query].append(pair)
    ids = {query: f"click-{_digest(query)}" for query in by_query}
    is_dev = {query: int(_digest(f"{seed}\n{query}"), 16) / 16**16 < dev_share for query in by_query}
    _write_lines(folder / "corpus.jsonl", (_line(each, each.fields) for each in documents))
    _write_lines(folder / "queries.jsonl", ({"_id": ids[query], "text": query} for query in by_query))
    counts = {"queries": 0, "pairs": 0, "dev_queries": sum(is_dev.values()), "negatives": 0}
    for split, wants_dev in (("train", False), ("dev", True)):
        chosen = [pair for query, pairs in by_query.items() if is_dev[query] == wants_dev for pair in pairs]
        rows = [f"{ids[pair.query]}\t{pair.id}\t1\n" for pair in chosen]
        _write(folder / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore\n", *rows])
        if not wants_dev:
            counts["pairs"] = len(chosen)
            counts["queries"] = len({pair.query for pair in chosen})
    lines = []
    for query in by_query:
        left = [identifier for identifier in learned.negatives.get(query, ()) if identifier in known]
        if left and not is_dev[query]:
            negatives = (
                Negative(identifier, rank, 0.0, KIND) for rank, identifier in enumerate(left, start=1)
            )
            lines.append(QueryNegatives(ids[query], query, tuple(negatives)))
            counts["negatives"] += len(left)
    header = Header(
        data=folder.name,
        split="train",
        documents_hash=documents_hash(documents),
        queries=len(lines),
        model=None,
        options={"source": KIND},
    )
    write_negatives(folder / NEGATIVES_FILE, header, lines)
    return counts


def _line(document: Document, fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "_id": document.id,
        **{name: list(values) for name, values in fields.items() if values},
        **document.metadata,
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    _write(path, (json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _write(path: Path, lines: Iterable[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(lines)
    except OSError as error:
        raise disk_error(path, error) from error
