"""The corpora: what is built of them, and how they change."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.made_index import documents

__all__ = ["CORPORA", "Corpus"]

Json = dict[str, Any]
DATA = Path(__file__).parents[1] / "data"
NEW: Json = {"_id": "new/volcano", "title": "volcanoes"}
NEW["text"] = "A volcano spits lava over the island and coffee."


@dataclass(frozen=True, slots=True)
class Corpus:
    """An index in the making."""

    documents: Callable[[], list[Json]]  # what it is built of
    flags: tuple[str, ...] = ()  # of `glow build`, beside model, input and output
    has_head: bool = False  # whether its model has a head of learned impacts

    def upserts(self) -> list[Json]:
        """One replaced by another text, one by itself with other metadata, one new, and one equal to one of the base."""
        base = self.documents()
        text = "nothing of the kind, but owls and tea"
        return [
            {"_id": base[3]["_id"], "title": "bees", "text": text, "lang": "is"},
            {**base[4], "year": 1990, "tags": ["changed"]},
            {**NEW, "lang": "is", "year": 2024, "day": "2024-02-29", "code": 7.5},
            {**base[6], "_id": "new/same"},
        ]

    def deletes(self) -> list[str]:
        """One of the base, one that was just replaced, and one that is not there."""
        base = self.documents()
        return [base[5]["_id"], base[4]["_id"], "nobody"]


def _with_metadata(records: list[Json]) -> list[Json]:
    """Beside the metadata of `made_index`: objects in some, and a field of mixed types."""
    for number, record in enumerate(records):
        record["code"] = number if number % 2 else f"c{number}"
        if number % 5 == 0:
            record["place"] = {"city": ("Bern", "Oslo")[number % 2]}
    return records


def _plain() -> list[Json]:
    """Short documents; three of them twice, whose scores tie."""
    made = documents(60)
    copies = [{**made[number], "_id": f"copy/{number}", "year": 2050 + number} for number in (1, 2, 8)]
    return _with_metadata([*made, *copies])


def _toy(count: int, topics: int) -> list[Json]:
    """Documents of the toy corpus, the texts of so many topics in each, with the metadata of `made_index`."""
    lines = [json.loads(line) for line in (DATA / "toy-corpus.jsonl").read_bytes().splitlines()]
    found = []
    for number, made in enumerate(documents(count)):
        picked = [lines[(number + 7 * place) % len(lines)] for place in range(topics)]
        text = " ".join(line["text"] for line in picked)
        found.append({**made, **picked[0], "text": text, "year": made["year"], "lang": made["lang"]})
    return _with_metadata(found)


CORPORA = {
    "plain": Corpus(_plain, ("--no-passages",)),
    "everything": Corpus(
        lambda: _toy(30, 6),
        (
            *("--passages", "--learned-sparse", "--expansion-terms", "30"),
            *("--rerank", str(DATA / "toy-reranker"), "--analyzer", "english"),
        ),
        has_head=True,
    ),
    "minimal": Corpus(lambda: _toy(16, 1), ("--no-lexical", "--no-explain", "--index", "hnsw")),
}
