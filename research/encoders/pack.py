"""Documents and queries of data directories as token arrays in one file.

`own`, `judged` and `copies` are of queries: the row of the document, whether people judged the pair, and copies in an epoch.
`source` numbers the directory of each document.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import Tensor

from glow.collection import read_documents, read_qrels, read_queries
from glow.commands import say
from glow.records import Document
from glow.text import Preprocessor, TermCounter, WeightedTokens, field_words, misspell_in
from research.encoders.flat import Flat, to_bytes
from research.encoders.texts import question

__all__ = ["Source", "flat", "make_pack"]

TYPO_EVERY, QUESTION_SHARE, TITLE_SHARE, URL_SHARE = 12, 0.5, 0.6, 0.6
FEWEST_WORDS, SHORTEST_WINDOW, LONGEST_WINDOW = 6, 5, 14
_WORD = re.compile(r"\S+")
Tensors = dict[str, Tensor]


class Source(NamedTuple):
    """How a data directory is read.

    Attributes:
        judged: whether people judged its pairs.
        copies: how often its queries occur in an epoch.
        most: most documents, 0: all; relevant ones of judged pairs always belong to them.
        titles: whether titles are queries too, or questions made from them.
        windows: fraction of the documents with words of the text as a query.
        urls: whether some documents without a url get one made from their id.
    """

    judged: bool = False
    copies: int = 1
    most: int = 0
    titles: bool = False
    windows: float = 0.0
    urls: bool = False


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
            if random.random() < source.windows and len(words := _WORD.findall(text)) >= FEWEST_WORDS:
                asked.append((self._window(words), place, False))
        self.queries += [(*each, source.copies) for each in asked]
        say(f"{folder.name}: {len(new):,} documents, {len(self.queries) - before:,} queries")

    def _window(self, words: Sequence[str]) -> str:
        length = int(self._random.integers(SHORTEST_WINDOW, LONGEST_WINDOW + 1))
        start = int(self._random.integers(0, max(0, len(words) - length) + 1))
        text = " ".join(words[start : start + length])
        return question(text, self._random) if self._random.random() < QUESTION_SHARE else text

    def _with_url(self, document: Document) -> Document:
        if document.fields.get("url") or self._random.random() >= URL_SHARE:
            return document
        path = document.id.split(":", 1)[-1].split("#")[0]
        end = "" if "." in path.rsplit("/", 1)[-1] else ".html"
        url = {"url": (f"https://docs.example.org/{path}{end}",)}
        return replace(document, fields={**document.fields, **url})


def make_pack(folders: Sequence[Path], preprocessor: Preprocessor, out: Path, seed: int = 11) -> None:
    """Writes token arrays, with weights by the statistics of all these texts.

    Args:
        folders: directories in BEIR's layout with a split `train`; `SOURCES` has options by their names.
        preprocessor: gives vocabulary, fields and weighting.
        out: file to write.
        seed: seed of all choices.
    """
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


def flat(pack: Tensors, name: str, pad_id: int, weighted: bool = True) -> Flat:
    """The `documents` or `queries` of a loaded pack; if not weighted, all weights are 1."""
    weights = pack[f"{name}.weights"] if weighted else None
    return Flat(pad_id, pack[f"{name}.ids"], pack[f"{name}.lengths"], weights, pack[f"{name}.fields"])
