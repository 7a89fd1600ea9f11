"""Unlabeled texts to train query towers by: queries, document sentences, and questions made from both by rules.

A question needs no answer and may be nonsense, because the encoder supplies its target vector.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from glow.collection import read_documents, read_qrels, read_queries

__all__ = ["make_texts"]

FIELDS = ("title", "text")
SENTENCES_A_DOCUMENT = 2
FEWEST_WORDS, MOST_WORDS = 2, 40
SHORTEST_PART, LONGEST_PART = 3, 10
QUESTION_SHARE, KEYWORD_SHARE = 0.5, 0.15
OPENINGS = (
    "what is", "what are", "what does", "which", "who", "when did", "when was", "where is", "where can I find", "why does",
    "why is", "how does", "how many", "how much", "how long does", "is it possible to", "can I", "does", "in what year",
)  # fmt: skip
TASKS = ("how to", "how do I", "how can I", "how do you", "what is the way to", "i want to", "command to", "")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")
_GERUND = re.compile(r"^([A-Z]?[a-z]{2,})ing\b")
_DOUBLED = re.compile(r"([bdgmnprt])\1$")


def make_texts(folders: Sequence[Path], count: int, seed: int) -> list[str]:
    """Draws texts.

    Args:
        folders: directories in BEIR's layout; only queries of the split `train` are read.
        count: most texts.
        seed: seed of the sample.

    Returns:
        Distinct texts of 2 to 40 words in random order.
    """
    random = np.random.default_rng(seed)
    found: dict[str, None] = {}
    for folder in folders:
        for text in _texts(folder, random):
            words = text.split()
            if FEWEST_WORDS <= len(words) <= MOST_WORDS:
                found[" ".join(words)] = None
    every = list(found)
    return [every[number] for number in random.permutation(len(every))[:count]]


def _texts(folder: Path, random: np.random.Generator) -> Iterator[str]:
    asked = {row.query_id for row in read_qrels(folder / "qrels" / "train.tsv")}
    for query in (each for each in read_queries(folder / "queries.jsonl") if each.id in asked):
        yield query.text
        if random.random() < QUESTION_SHARE:
            yield question(query.text, random)
    for document in read_documents(folder / "corpus.jsonl", FIELDS):
        sentences = [part for value in document.fields.get("text", ()) for part in _END.split(value)]
        for number in random.permutation(len(sentences))[:SENTENCES_A_DOCUMENT]:
            yield from _of_sentence(sentences[number], random)


def _of_sentence(sentence: str, random: np.random.Generator) -> Iterator[str]:
    """The sentence, a question about a part of it, or sometimes only a few of its words."""
    yield question(sentence, random) if random.random() < QUESTION_SHARE else sentence
    words = sentence.split()
    if random.random() < KEYWORD_SHARE and len(words) > SHORTEST_PART:
        kept = np.sort(random.choice(len(words), random.integers(2, min(len(words), 6)), replace=False))
        yield " ".join(words[place].strip(".,;:()") for place in kept).lower()


def question(text: str, random: np.random.Generator) -> str:
    """Makes a question of a text: a task if it begins with a gerund, else an opening before some of its words."""
    gerund = _GERUND.match(text)
    if gerund:
        verb = _DOUBLED.sub(r"\1", gerund[1].lower())
        return f"{TASKS[random.integers(len(TASKS))]} {verb}{text[gerund.end() :]}".strip()
    words = text.rstrip(".!?:").split()
    length = int(random.integers(SHORTEST_PART, LONGEST_PART + 1))
    start = int(random.integers(0, max(1, len(words) - length + 1)))
    part = " ".join(words[start : start + length]).strip(" ,;:()")
    mark = "?" if random.random() < 0.5 else ""
    return f"{OPENINGS[random.integers(len(OPENINGS))]} {part[:1].lower() + part[1:]}{mark}"
