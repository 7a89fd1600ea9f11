"""Queries without relevant documents: questions of other datasets, invented words, and random known words."""

import random
import string
from collections.abc import Iterator, Mapping
from pathlib import Path

from research.folders import read_records, write_folder

__all__ = ["STRANGERS", "write_nothing"]

STRANGERS: Mapping[str, tuple[str, ...]] = {
    "tldr": ("medquad",),
    "medquad": ("tldr", "office", "science", "howto-postgresql"),
    "office": ("medquad",),
    "science": ("medquad",),
    "howto-postgresql": ("medquad",),
}
"""Dataset -> datasets whose questions it cannot answer."""
EACH, SEED = 60, 36
TEXTS = 600
"""Numbers of documents, and of words of each, that known words are drawn from."""


def write_nothing(collections: Mapping[str, Path], out: Path) -> None:
    """Writes a directory for each dataset of `STRANGERS`: its documents, and queries judged on an arbitrary one.

    Args:
        collections: name -> directory.
        out: directory to write to.
    """
    draw = random.Random(SEED)  # noqa: S311 - queries, not secrets
    for name, strangers in STRANGERS.items():
        documents = read_records(collections[name] / "corpus.jsonl")
        texts = documents[:TEXTS]
        foreign = [
            text
            for other in strangers
            for text in _questions(collections[other], draw, 2 * EACH // len(strangers))
        ]
        queries = [*foreign, *_made_up(draw), *_mixed(texts, draw)]
        asked = [{"_id": f"{number:04}", "text": text} for number, text in enumerate(queries)]
        judged = {each["_id"]: [texts[0]["_id"]] for each in asked}
        write_folder(out / name, documents, asked, {"dev": judged})


def _questions(folder: Path, draw: random.Random, count: int) -> list[str]:
    texts = [each["text"] for each in read_records(folder / "queries.jsonl")]
    return draw.sample(texts, min(count, len(texts)))


def _made_up(draw: random.Random) -> Iterator[str]:
    for _ in range(EACH):
        words = (
            "".join(draw.choices(string.ascii_lowercase, k=draw.randint(4, 9)))
            for _ in range(draw.randint(2, 5))
        )
        yield " ".join(words)


def _mixed(texts: list[dict[str, str]], draw: random.Random) -> Iterator[str]:
    words = [word for text in texts for word in text["text"].split()[:40] if word.isalpha() and len(word) > 3]
    for _ in range(EACH):
        yield " ".join(draw.sample(words, draw.randint(3, 6)))
