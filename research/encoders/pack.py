"""Texts to train by, and documents and queries of data directories as token arrays in one file.

T   tokens of all texts        N   texts        n   texts of a batch        L   tokens of the longest
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import Tensor

from glow.collection import read_documents, read_qrels, read_queries
from glow.commands import say
from glow.nn import Tower
from glow.records import Document
from glow.text import Preprocessor, TermCounter, WeightedTokens, field_words, misspell_in
from glow.training.run import autocast

FIELDS, SENTENCES_A_DOCUMENT = ("title", "text"), 2
FEWEST_WORDS, MOST_WORDS, SHORTEST_PART, LONGEST_PART = 2, 40, 3, 10
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
    """Draws distinct texts of 2 to 40 words, in random order; only queries of the split `train` are read."""
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


BATCH_TOKENS, OCTAVE, ZERO, LEAST = 262_144, 16, 176, 1e-3


def to_bytes(weights: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Logarithms of weights in 8 bits: 16 steps for each factor of 2, from 0.001 to 30."""
    steps = np.round(np.log2(np.maximum(weights, LEAST)) * OCTAVE) + ZERO
    return np.asarray(np.clip(steps, 0, 255), np.uint8)


def mixed(device: torch.device, precision: str = "bf16") -> AbstractContextManager[None]:
    """A context whose matrix products have 16 bits on a GPU and 32 bits on a CPU."""
    return autocast(precision if device.type == "cuda" else "fp32", device)()


class Flat:
    """Token sequences; without weights all are 1, without fields all are 0."""

    def __init__(
        self,
        pad_id: int,
        ids: Tensor,  # int32 [T]
        lengths: Tensor,  # int64 [N]
        weights: Tensor | None = None,  # uint8 [T], of `to_bytes`
        fields: Tensor | None = None,  # uint8 [T]
    ) -> None:
        self.pad_id, self.ids, self.lengths, self.weights, self.fields = pad_id, ids, lengths, weights, fields
        self._starts = lengths.cumsum(0) - lengths

    def batch(self, rows: Tensor, most: int, step: int = 16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A tower's arguments for these rows [n, L], cut at `most` tokens and padded to a multiple of `step`."""
        lengths = self.lengths[rows].clamp(max=most)
        places = torch.arange(min(most, -(-int(lengths.max()) // step) * step), device=rows.device)
        mask = places < lengths[:, None]
        at = (self._starts[rows][:, None] + places).clamp(max=len(self.ids) - 1)
        ids = torch.where(mask, self.ids[at].long(), self.pad_id)
        fields = (
            torch.zeros_like(ids) if self.fields is None else torch.where(mask, self.fields[at].long(), 0)
        )
        weights = torch.ones(ids.shape, device=ids.device)
        if self.weights is not None:
            weights = torch.where(mask, torch.exp2((self.weights[at].float() - ZERO) / OCTAVE), weights)
        return ids, mask.long(), fields, weights

    @torch.no_grad()
    def encode(self, tower: Tower) -> Tensor:
        """Vectors of all texts by a tower on the same device, float16 [N, dimensions]."""
        device, most, start = self.ids.device, tower.positions.num_embeddings, 0
        found = torch.empty(len(self.lengths), tower.dimensions, dtype=torch.float16, device=device)
        order = torch.argsort(self.lengths, descending=True)
        while start < len(order):
            longest = min(most, int(self.lengths[order[start]]))
            rows = order[start : start + max(1, BATCH_TOKENS // longest)]
            start += len(rows)
            with mixed(device, "fp16"):
                found[rows] = tower(*self.batch(rows, most)).half()
        return found


TYPO_EVERY, MADE_QUESTION_SHARE, TITLE_SHARE, URL_SHARE, FEWEST_QUERY_WORDS = 12, 0.5, 0.6, 0.6, 6
SHORTEST_WINDOW, LONGEST_WINDOW, _WORD = 5, 14, re.compile(r"\S+")
Tensors = dict[str, Tensor]


class Source(NamedTuple):
    """How a data directory is read."""

    judged: bool = False  # whether people judged its pairs
    copies: int = 1  # how often its queries occur in an epoch
    most: int = 0  # most documents, 0: all; relevant ones of judged pairs always belong to them
    titles: bool = False  # whether titles are queries too, or questions made from them
    windows: float = 0.0  # fraction of the documents with words of the text as a query
    urls: bool = False  # whether some documents without a url get one made from their id


SOURCES = {
    "tldr": Source(judged=True, copies=4),
    "medquad": Source(judged=True, copies=3, windows=0.8),
    "books": Source(windows=0.4, urls=True),
    "packages": Source(windows=0.2),
    "words": Source(most=36_000),
    "links": Source(judged=True, most=95_000, titles=True, windows=0.4, urls=True),
}


class _Packed:
    def __init__(self, names: Sequence[str], seed: int) -> None:
        self._names, self._random = names, np.random.default_rng(seed)
        self.documents: list[Document] = []
        self.sources: list[int] = []
        self.queries: list[tuple[str, int, bool, int]] = []

    def add(self, folder: Path, source: Source) -> None:
        random, before = self._random, len(self.queries)
        documents = list(read_documents(folder / "corpus.jsonl", self._names))
        texts = {each.id: each.text for each in read_queries(folder / "queries.jsonl")}
        at = {each.id: number for number, each in enumerate(documents)}
        rows = (row for row in read_qrels(folder / "qrels" / "train.tsv") if row.grade > 0)
        known = (row for row in rows if row.query_id in texts and row.document_id in at)
        pairs = [(texts[row.query_id], at[row.document_id]) for row in known]
        kept = {number for _, number in pairs} if source.judged else set()
        others = [number for number in random.permutation(len(at)).tolist() if number not in kept]
        kept.update(others[: max(0, (source.most or len(at)) - len(kept))])
        new = {number: len(self.documents) + place for place, number in enumerate(sorted(kept))}
        self.documents += [self._with_url(documents[i]) if source.urls else documents[i] for i in new]
        self.sources += [max(self.sources, default=-1) + 1] * len(new)
        asked = [(text, new[number], source.judged) for text, number in pairs if number in new]
        for number, place in new.items():
            title, text = (" ".join(documents[number].fields.get(name, ())) for name in ("title", "text"))
            if source.titles and title:
                whole = random.random() < TITLE_SHARE
                asked.append((title if whole else question(title, random), place, False))
            if random.random() < source.windows and len(words := _WORD.findall(text)) >= FEWEST_QUERY_WORDS:
                asked.append((self._window(words), place, False))
        self.queries += [(*each, source.copies) for each in asked]
        say(f"{folder.name}: {len(new):,} documents, {len(self.queries) - before:,} queries")

    def _window(self, words: Sequence[str]) -> str:
        length = int(self._random.integers(SHORTEST_WINDOW, LONGEST_WINDOW + 1))
        start = int(self._random.integers(0, max(0, len(words) - length) + 1))
        text = " ".join(words[start : start + length])
        return question(text, self._random) if self._random.random() < MADE_QUESTION_SHARE else text

    def _with_url(self, document: Document) -> Document:
        if document.fields.get("url") or self._random.random() >= URL_SHARE:
            return document
        path = document.id.split(":", 1)[-1].split("#")[0]
        end = "" if "." in path.rsplit("/", 1)[-1] else ".html"
        url = {"url": (f"https://docs.example.org/{path}{end}",)}
        return replace(document, fields={**document.fields, **url})


def make_pack(folders: Sequence[Path], preprocessor: Preprocessor, out: Path, seed: int = 11) -> None:
    """Writes token arrays, with weights by the statistics of all these texts."""
    packed, pieces = _Packed(preprocessor.schema.names, seed), preprocessor.pieces
    for folder in folders:
        packed.add(folder, SOURCES.get(folder.name, Source()))
    asked, *columns = zip(*packed.queries, strict=True)
    texts = [misspell_in(text, Random(i)) if i % TYPO_EVERY == 0 else text for i, text in enumerate(asked)]  # noqa: S311
    counter = TermCounter()
    for document in packed.documents:
        counter.add(field_words(document, preprocessor.schema, pieces))
    for text in texts:
        counter.add_query(pieces.words(text))
    weighted = Preprocessor(pieces, preprocessor.schema, preprocessor.weighting, counter.table())
    found = _arrays("documents", map(weighted.document, packed.documents))
    found |= _arrays("queries", map(weighted.query, texts))
    found |= {name: np.array(each) for name, each in zip(("own", "judged", "copies"), columns, strict=True)}
    save_file({**found, "source": np.array(packed.sources)}, out)


def _arrays(name: str, texts: Iterable[WeightedTokens]) -> dict[str, NDArray[Any]]:
    rows = [(np.int32(each.ids), to_bytes(each.weights), np.uint8(each.field_ids)) for each in texts]
    ids, weights, fields = (np.concatenate(part) for part in zip(*rows, strict=True))
    lengths = np.array([len(row[1]) for row in rows])
    found = {"ids": ids, "lengths": lengths, "weights": weights, "fields": fields}
    return {f"{name}.{part}": each for part, each in found.items()}


def flat(pack: Tensors, name: str, pad_id: int) -> Flat:
    """The `documents` or `queries` of a loaded pack."""
    ids, lengths, weights, fields = (
        pack[f"{name}.{part}"] for part in ("ids", "lengths", "weights", "fields")
    )
    return Flat(pad_id, ids, lengths, weights, fields)
