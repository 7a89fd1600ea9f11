"""Long documents: those of one URL become one page, in their order."""

from collections import defaultdict
from pathlib import Path

import numpy as np

from glow.collection import read_qrels
from research.folders import Record, read_records, write_folder

__all__ = ["join_pages"]

LISTS = ("anchor", "clicked_queries")


def join_pages(data: Path, out: Path, least: int = 0, moved: int = 0) -> list[int]:
    """Writes a data directory of pages; returns the number of words of each.

    Args:
        data: data directory in BEIR's layout, whose documents have a `url`.
        out: directory to write; a page has its first document's id.
        least: fewest words of a page; shorter ones are left out, with their relevance judgments.
        moved: queries drawn by seed 0 that move from `train` to `dev`, for narrow intervals.
    """
    pages: dict[str, list[Record]] = defaultdict(list)
    for record in read_records(data / "corpus.jsonl"):
        pages[record["url"]].append(record)
    of_document = {part["_id"]: parts[0]["_id"] for parts in pages.values() for part in parts}
    joined = [
        {
            **parts[0],
            **{name: list(dict.fromkeys(text for part in parts for text in part[name])) for name in LISTS},
            "text": "\n".join(part["text"] for part in parts),
        }
        for parts in pages.values()
    ]
    joined = [page for page in joined if len(page["text"].split()) >= least]
    kept = {page["_id"] for page in joined}
    judged: dict[str, dict[str, list[str]]] = {}
    for split in ("train", "dev"):
        found: dict[str, list[str]] = defaultdict(list)
        for row in read_qrels(data / "qrels" / f"{split}.tsv"):
            page = of_document[row.document_id]
            if row.grade > 0 and page in kept and page not in found[row.query_id]:
                found[row.query_id].append(page)
        judged[split] = {query: documents for query, documents in found.items() if documents}
    train = list(judged["train"])
    for place in np.random.default_rng(0).choice(len(train), moved, replace=False).tolist():
        judged["dev"][train[place]] = judged["train"].pop(train[place])
    write_folder(out, joined, read_records(data / "queries.jsonl"), judged)
    return [len(page["text"].split()) for page in joined]
