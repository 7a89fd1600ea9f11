"""What a projection is trained on: headings of manuals that the default model has read, and training queries of tldr and MedQuAD.

Candidates and states of these queries are gathered as those of the collections that are measured.
"""

import json
import random
from collections import defaultdict
from pathlib import Path

from glow.collection import read_qrels
from research.late.collections import SEED, Record, sections, write_collection

__all__ = ["LEARNING", "MANUALS", "write_learning"]

MANUALS = "manuals"
JUDGED = {"tldr-train": "tldr", "medquad-train": "medquad"}
LEARNING = {MANUALS: MANUALS, **JUDGED}
"""Names of the training queries, and of the collection that they search."""
PACKAGES = (
    "debian-handbook",
    "gimp-help-en",
    "maxima-doc",
    "octave-doc",
    "postgresql-doc-15",
    "python-astropy-doc",
)
"""Among those that the default model was trained on (docs/data.md), unpacked with `dpkg -x`."""
QUERIES = 1500
SPLIT = "train"


def write_learning(data: Path, packages: Path, collections: Path) -> dict[str, tuple[int, int]]:
    """Writes a folder for each kind of training queries, with the split `train`.

    Args:
        data: holds `tldr` and `medquad`.
        packages: holds a folder for each package of manuals.
        collections: where the collections that are measured are. Queries of tldr and MedQuAD are drawn from those that documents there
            answer.

    Returns:
        Name -> number of documents and of queries.
    """
    documents, queries, qrels = sections([packages / each for each in PACKAGES], False)
    write_collection(collections / MANUALS, documents, queries, qrels, SPLIT)
    counts = {MANUALS: (len(documents), len(queries))}
    for name, searched in JUDGED.items():
        found = _lines(collections / searched / "corpus.jsonl")
        held = {each["_id"] for each in found}
        relevant: dict[str, list[str]] = defaultdict(list)
        for each in read_qrels(data / searched / "qrels" / f"{SPLIT}.tsv"):
            if each.grade > 0 and each.document_id in held:
                relevant[each.query_id].append(each.document_id)
        drawn = random.Random(SEED).sample(sorted(relevant), min(QUERIES, len(relevant)))  # noqa: S311
        kept = {identifier: relevant[identifier] for identifier in sorted(drawn)}
        texts = {each["_id"]: each for each in _lines(data / searched / "queries.jsonl")}
        write_collection(collections / name, found, [texts[each] for each in kept], kept, SPLIT)
        counts[name] = len(found), len(kept)
    return counts


def _lines(path: Path) -> list[Record]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
