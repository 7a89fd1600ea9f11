"""The measured datasets: parts of tldr and MedQuAD, and three from Debian packages that the encoder was not trained on.

In the latter, a section's heading is the query for the section, which lacks it (`research.debian`).
"""

import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from glow.collection import read_qrels
from research.debian.books import book_pairs
from research.debian.pair import Pair
from research.folders import Record, read_records, write_folder

__all__ = ["COLLECTIONS", "SEED", "write_collections"]

COLLECTIONS = ("tldr", "medquad", "science", "office", "faq")
SEED = 35
PACKAGES = {
    "science": ("python-statsmodels-doc", "python-nibabel-doc"),
    "office": ("slurm-wlm-doc", "gnucash-docs"),
    "faq": ("r-doc-html", "debian-faq", "git-doc", "ffmpeg-doc", "privoxy", "fetchmail"),
}
"""Packages. The default model's card lists those of the first two lines as held out; the third line is in no list."""
QUERIES = {"tldr": 700, "medquad": 500, "science": 500, "office": 500, "faq": 500}
MEDQUAD_DOCUMENTS = 6000
MOST_DOCUMENTS_OF_A_QUERY = 5
LEAST_WORDS = 3
"""Fewest words of a heading as query: "Concepts" is not a question."""
_QUESTION = re.compile(
    r"(?i)^\W*(how|why|what|where|when|which|who|can|could|do|does|is|are|should|will|i)\b|.*\?$"
)


def write_collections(data: Path, packages: Path, out: Path) -> dict[str, tuple[int, int]]:
    """Writes a directory for each dataset, in BEIR's layout with the split `dev`.

    Args:
        data: directory of `tldr` and `medquad`.
        packages: directory of the packages, unpacked with `dpkg -x`.
        out: directory to write.

    Returns:
        Name -> number of documents and of queries.
    """
    counts = {}
    for name in COLLECTIONS:
        if name in PACKAGES:
            documents, queries, qrels = _sections([packages / each for each in PACKAGES[name]], name == "faq")
        else:
            documents, queries, qrels = _judged(data / name)
        random.Random(SEED).shuffle(queries)  # noqa: S311 - an order, not a secret
        kept = sorted(queries[: QUERIES[name]], key=lambda query: str(query["_id"]))
        relevant = {query["_id"]: qrels[query["_id"]] for query in kept}
        if name == "medquad":
            documents = _topics(documents, {each for found in relevant.values() for each in found})
        write_folder(out / name, documents, kept, {"dev": relevant})
        counts[name] = len(documents), len(kept)
    return counts


def _judged(folder: Path) -> tuple[list[Record], list[Record], dict[str, list[str]]]:
    qrels: dict[str, list[str]] = defaultdict(list)
    for each in read_qrels(folder / "qrels" / "dev.tsv"):
        if each.grade > 0:
            qrels[each.query_id].append(each.document_id)
    queries = [query for query in read_records(folder / "queries.jsonl") if query["_id"] in qrels]
    return read_records(folder / "corpus.jsonl"), queries, qrels


def _topics(documents: Sequence[Record], relevant: set[str]) -> list[Record]:
    """Whole topics (all answers about one subject): those of relevant documents, and random others up to a limit."""
    by_topic: dict[str, list[Record]] = defaultdict(list)
    for document in documents:
        by_topic[_topic(document["_id"])].append(document)
    wanted = sorted({_topic(each) for each in relevant})
    others = sorted(set(by_topic) - set(wanted))
    random.Random(SEED).shuffle(others)  # noqa: S311
    kept: list[Record] = []
    for topic in [*wanted, *others]:
        if len(kept) >= MEDQUAD_DOCUMENTS:
            break
        kept += by_topic[topic]
    return kept


def _topic(identifier: str) -> str:
    return identifier.rpartition("-")[0] or identifier.rpartition("_")[0]


def _sections(
    roots: Sequence[Path], questions: bool
) -> tuple[list[Record], list[Record], dict[str, list[str]]]:
    """Sections of packages, with headings as queries; holds out questions whose id has an odd SHA-256."""
    pairs: dict[str, Pair] = {}
    texts: set[str] = set()
    for root in roots:
        for pair in book_pairs(root):
            if pair.text not in texts:
                texts.add(pair.text)
                pairs[pair.id] = pair
    by_query: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs.values():
        by_query[re.sub(r"\W+", " ", _heading(pair).lower()).strip()].append(pair)
    queries, qrels = [], {}
    for found in by_query.values():
        text, identifier = _heading(found[0]), f"q-{found[0].id}"
        if len(found) > MOST_DOCUMENTS_OF_A_QUERY or len(text.split()) < LEAST_WORDS:
            continue
        if questions and not _is_kept_question(text, identifier):
            continue
        queries.append({"_id": identifier, "text": text})
        qrels[identifier] = [pair.id for pair in found]
    documents = [{"_id": each.id, "title": each.title, "text": each.text} for each in pairs.values()]
    return documents, queries, qrels


def _heading(pair: Pair) -> str:
    return pair.query.removesuffix("# TOC").strip()


def _is_kept_question(text: str, identifier: str) -> bool:
    return _QUESTION.match(text) is not None and hashlib.sha256(identifier.encode()).digest()[0] % 2 == 0
