"""NDRM1 to NDRM3 over a data directory: `python -m research ndrm --data DIR --json FILE`.

V   terms, 0 for padding and unknown terms          E   dimensions of a term's vector       T, L   terms of a query, a document
N   documents       W   distinct terms of the queries       B   queries of a batch      D   documents of a query, 4
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.report import machine
from glow.evaluation import Evaluation
from glow.nn import load_weights, minilm_folder
from glow.records import Document
from glow.schema import FieldSchema
from glow.text import DEFAULT_ANALYZER, Analyzer, WordPieces, is_lexical
from glow.training.data import Collection, read_collection
from glow.training.run import Moment, OptimizerOptions
from research.folders import given_folder, names_among
from research.ndrm_model import Ndrm, NdrmConfig, TermStatistics
from research.steps import UNCLIPPED, Draws, measured, take_steps

QUERY_TERMS = 20
DOCUMENT_TERMS = 4000
MIN_COUNT = 2


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Numbered terms."""

    places: dict[str, int]  # term -> its number, from 1
    words: list[str]  # the most frequent word of each number's term; the first is empty

    def __len__(self) -> int:
        return len(self.words)


class TermCollection:
    """A collection as numbered terms; a query has at most `QUERY_TERMS`.

    Without a vocabulary, of another split of the same documents, it is made of these documents and queries.
    """

    def __init__(
        self,
        collection: Collection,
        pieces: WordPieces,
        *,
        vocabulary: Vocabulary | None = None,
        longest: int = DOCUMENT_TERMS,
    ) -> None:
        self.collection, self._pieces, self._longest = collection, pieces, longest
        self._analyzer = Analyzer(DEFAULT_ANALYZER)
        texts = [self._terms(_text(document)) for document in collection.documents]
        asked = [self._terms([query])[:QUERY_TERMS] for query in collection.queries]
        self.vocabulary = vocabulary or _vocabulary([*texts, *asked])
        self.documents = [self._numbers(text) for text in texts]
        self.queries = [self._numbers(query) for query in asked]
        self.lengths = np.array([len(text) for text in texts], np.float32)  # unknown terms included
        self.counts = [Counter(document.tolist()) for document in self.documents]
        df = Counter(place for counts in self.counts for place in counts)
        dfs = np.array([df[place] for place in range(len(self.vocabulary))], np.float64)
        self.idf = np.maximum(np.log((len(texts) - dfs + 0.5) / (dfs + 0.5)), 0.0).astype(np.float32)
        self.idf[0] = 0.0

    def _terms(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        words = (word for text in texts for word in self._pieces.words(text) if is_lexical(word))
        return [(self._analyzer.term(word), word) for word in words]

    def _numbers(self, terms: Sequence[tuple[str, str]]) -> NDArray[np.int64]:
        places = self.vocabulary.places
        return np.array([places.get(term, 0) for term, _ in terms], np.int64)

    def padded(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Terms of documents, int64 [n, L], and their mask, bool [n, L]; at least one, perhaps unknown, term each."""
        ids, mask = _padded([self.documents[row][: self._longest] for row in rows])
        mask[:, 0] = True
        return ids, mask

    def statistics(self, terms: Tensor, rows: NDArray[np.int64], mask: Tensor) -> TermStatistics:
        """Statistics of terms int64 [Q, T] in documents int64 [Q, D], as [Q, D, T]; mask bool [Q, T]."""
        asked = terms.tolist()
        tf = [
            [[self.counts[row][term] if term else 0 for term in one] for row in own]
            for one, own in zip(asked, rows.tolist(), strict=True)
        ]
        idf = torch.from_numpy(self.idf)[terms][:, None]
        length = torch.from_numpy(self.lengths[rows])[..., None]
        return TermStatistics(torch.tensor(tf, dtype=torch.float32), idf, length, mask[:, None])


def _padded(terms: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Terms, int64 [n, L], and their mask, bool [n, L]; L is at least 1."""
    lengths = torch.tensor([len(each) for each in terms])
    ids = torch.zeros(len(terms), max(int(lengths.max()), 1), dtype=torch.int64)
    for place, each in enumerate(terms):
        ids[place, : len(each)] = torch.from_numpy(each)
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def _text(document: Document) -> list[str]:
    left_out = ("url", "clicked_queries")
    return [text for name, texts in document.fields.items() if name not in left_out for text in texts]


def _vocabulary(texts: Sequence[Sequence[tuple[str, str]]]) -> Vocabulary:
    counted = Counter(pair for text in texts for pair in text)
    totals: Counter[str] = Counter()
    best: dict[str, str] = {}
    for (term, word), count in counted.most_common():
        totals[term] += count
        best.setdefault(term, word)
    kept = [term for term, count in totals.most_common() if count >= MIN_COUNT]
    return Vocabulary(
        {term: place for place, term in enumerate(kept, 1)}, ["", *(best[term] for term in kept)]
    )


def first_vectors(vocabulary: Vocabulary, pieces: WordPieces) -> Tensor:
    """Float [V, E]: the normalized mean of the MiniLM token embeddings of each term's most frequent word."""
    table = torch.from_numpy(load_weights(minilm_folder())["embeddings.word_embeddings.weight"])
    ids = [pieces.pieces(word) for word in vocabulary.words[1:]]
    means = [table[torch.tensor(each)].mean(0) for each in ids]
    return torch.nn.functional.normalize(torch.stack([torch.zeros(table.shape[1]), *means]), dim=-1)


RANDOM = 2
GRADES = (2.0, 1.0, 0.0, 0.0)
LAST_RATE = 0.02
Batch = tuple[list[int], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Options:
    """Training options; the others are the paper's."""

    steps: int
    batch_size: int = 32  # queries
    rate: float = 1e-3  # Adam's learning rate; the paper has 1e-4 for 131,072 steps
    seed: int = 0


def train(
    model: Ndrm, terms: TermCollection, hundred: Sequence[NDArray[np.int64]], options: Options
) -> list[float]:
    """Trains a model in place; returns the loss of every step."""
    usable = [number for number, query in enumerate(terms.queries) if len(query)]

    def draw(random: np.random.Generator) -> Batch:
        queries = random.choice(usable, options.batch_size, replace=False).tolist()
        return queries, np.stack([_documents(terms, hundred, query, random) for query in queries])

    def loss(batch: Batch, moment: Moment) -> Tensor:
        scores = scores_of(model, terms, *batch)
        return ranknet_loss(scores, torch.tensor(GRADES).expand(len(scores), -1))

    adam = OptimizerOptions(
        learning_rate=options.rate, weight_decay=0.0, clip_norm=UNCLIPPED, precision="fp32"
    )
    return take_steps(model, Draws(options.seed, options.steps, draw), loss, adam, floor=LAST_RATE)


def ranknet_loss(scores: Tensor, grades: Tensor) -> Tensor:
    """-ln(sigmoid(s_i - s_j) + 1e-6), mean over the pairs of a query with grade i above grade j, mean over queries; a scalar.

    Source: Conformer-Kernel with query term independence, section 5.3; the constant is the released code's. Both are float [B, N].
    """
    above = (grades[:, :, None] > grades[:, None, :]).to(scores.dtype)
    losses = -torch.log(torch.sigmoid(scores[:, :, None] - scores[:, None, :]) + 1e-6) * above
    pairs = above.sum((1, 2))
    return (losses.sum((1, 2))[pairs > 0] / pairs[pairs > 0]).mean()


def _documents(
    terms: TermCollection, hundred: Sequence[NDArray[np.int64]], query: int, random: np.random.Generator
) -> NDArray[np.int64]:
    relevant = terms.collection.relevant[query]
    found = hundred[query]
    others = found[~np.isin(found, list(relevant))]
    count = len(terms.documents)
    second = random.choice(others) if len(others) else random.integers(count)
    return np.array([random.choice(sorted(relevant)), second, *random.integers(count, size=RANDOM)], np.int64)


def scores_of(model: Ndrm, terms: TermCollection, queries: Sequence[int], rows: NDArray[np.int64]) -> Tensor:
    """Scores of queries' own documents, int64 [B, D] -> float [B, D]."""
    asked, real = _padded([terms.queries[query] for query in queries])
    given = terms.statistics(asked, rows, real)
    latent = None
    if model.config.kind != "explicit":
        documents, present = terms.padded(rows.reshape(-1).tolist())
        shape = (*rows.shape, documents.shape[1])
        context = model.document(documents, present).reshape(*shape, -1)
        words = model.query_words(asked)[:, None]
        latent = model.latent(words, context, present.reshape(shape))
    return model.combine(latent, given).sum(-1)


CHUNK_DOCUMENTS = 64
MAX_CELLS = 200_000
"""Most pairs of a term and a document word whose kernels are in memory at once."""
K1, B = 1.2, 0.75


def term_scores(model: Ndrm, terms: TermCollection, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    """The contribution of each term to each document, float32 [W, N]."""
    tf = _counts(terms, wanted)
    made, every = np.empty_like(tf), torch.from_numpy(wanted)
    with torch.inference_mode():
        words = model.query_words(every) if model.config.kind != "explicit" else None
        for start in range(0, len(terms.documents), CHUNK_DOCUMENTS):
            rows = np.arange(start, min(start + CHUNK_DOCUMENTS, len(terms.documents)))
            ids, mask = terms.padded(rows.tolist())
            context = model.document(ids, mask) if words is not None else None
            length, real = torch.from_numpy(terms.lengths[rows])[:, None], torch.ones(1, 1, dtype=torch.bool)
            block = max(1, MAX_CELLS // max(ids.numel(), 1))
            for first in range(0, len(wanted), block):
                here = slice(first, first + block)
                latent = None
                if words is not None and context is not None:
                    latent = model.latent(words[here][None], context, mask)
                idf = torch.from_numpy(terms.idf)[every[here]][None]
                given = TermStatistics(torch.from_numpy(tf[here, rows].T.copy()), idf, length, real)
                made[here, rows] = model.combine(latent, given).T.numpy()
    return made


def bm25(terms: TermCollection, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    """BM25 of each term in each document, float32 [W, N]."""
    tf = _counts(terms, wanted)
    df = (tf > 0).sum(1, keepdims=True)
    idf = np.log(1.0 + (tf.shape[1] - df + 0.5) / (df + 0.5))
    length = 1.0 - B + B * terms.lengths / max(float(terms.lengths.mean()), 1.0)
    return np.asarray(idf * tf * (K1 + 1.0) / (tf + K1 * length), np.float32)


def _counts(terms: TermCollection, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
    places = {int(term): place for place, term in enumerate(wanted.tolist())}
    tf = np.zeros((len(wanted), len(terms.documents)), np.float32)
    for row, counts in enumerate(terms.counts):
        for term, times in counts.items():
            if (at := places.get(term)) is not None:
                tf[at, row] = times
    return tf


def rank(
    terms: TermCollection,
    wanted: NDArray[np.int64],
    scores: NDArray[np.float32],
    k: int = 100,
    among: Sequence[NDArray[np.int64]] | None = None,
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Rows and scores of the k best documents of each query; a repeated term counts again.

    `scores` is float32 [W, N] for the terms `wanted`, int64 [W]; without the candidates `among`, all documents are ranked.
    """
    places = {int(term): place for place, term in enumerate(wanted.tolist())}
    found = []
    for number, query in enumerate(terms.queries):
        total = scores[[places[int(term)] for term in query if int(term) in places]].sum(0)
        if not np.ndim(total):
            total = np.zeros(scores.shape[1], np.float32)
        rows = np.arange(len(total)) if among is None else among[number]
        best = rows[np.argsort(-total[rows], kind="stable")[:k]]
        found.append((best, total[best]))
    return found


app = typer.Typer(add_completion=False)
MEASURES = ("RR@10", "nDCG@10", "R@100")
VARIANTS: Mapping[str, dict[str, Any]] = {
    "NDRM1": {"kind": "latent"},
    "NDRM2": {"kind": "explicit"},
    "NDRM3": {"kind": "both"},
}
Rankings = Sequence[tuple[Any, Any]]


@app.command()
def tables(
    data: Annotated[Path, given_folder("In BEIR's layout, with a split `train`.")],
    json_file: Annotated[Path, typer.Option("--json")],
    split: Annotated[str, typer.Option()] = "dev",
    steps: Annotated[int, typer.Option()] = 1000,
    seeds: Annotated[int, typer.Option()] = 1,
    variants: Annotated[str, names_among(list(VARIANTS), "By commas.")] = ",".join(VARIANTS),
    queries: Annotated[int, typer.Option()] = 600,
    batch_size: Annotated[int, typer.Option()] = 32,
    document_terms: Annotated[int, typer.Option()] = 4000,
) -> None:
    """Trains each variant on the split `train` and measures it on another; appends each result to the file.

    `less` has the mean difference to BM25 of each query's measure, and its 95 % interval.
    """
    torch.set_num_threads(2)
    schema, pieces = FieldSchema.preset("glow-default"), WordPieces(minilm_folder() / "vocab.txt")
    learned = TermCollection(read_collection(data, "train", schema), pieces, longest=document_terms)
    asked = _some(read_collection(data, split, schema), queries)
    judged = TermCollection(asked, pieces, vocabulary=learned.vocabulary, longest=document_terms)
    first = first_vectors(learned.vocabulary, pieces)
    made: dict[str, Any] = {"queries": len(asked.queries), "machine": machine(), "data": data.name}
    made |= {"split": split, "steps": steps}
    hundred = []
    for terms in (learned, judged):
        wanted = np.unique(np.concatenate(terms.queries))
        hundred.append([rows for rows, _ in rank(terms, wanted, bm25(terms, wanted))])
    base = _measured(judged, rank(judged, wanted, bm25(judged, wanted)))
    made["rows"] = [{"model": "BM25", "full": _told(base)}]
    study = _Study(learned, judged, hundred, first, base)
    for seed in range(seeds):
        for name in variants.split(","):
            made["rows"].append(_one(name, Options(steps, batch_size, seed=seed), study))
            json_file.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
            sys.stderr.write(json.dumps(made["rows"][-1]) + "\n")


class _Study(NamedTuple):
    """What every variant is trained and measured with."""

    learned: TermCollection
    judged: TermCollection
    hundred: list[list[Any]]
    first: torch.Tensor
    base: Evaluation


def _one(name: str, options: Options, study: _Study) -> dict[str, Any]:
    torch.manual_seed(options.seed)
    learned, judged, base = study.learned, study.judged, study.base
    sizes = {"words": len(learned.vocabulary), "embedding": study.first.shape[1]}
    model = Ndrm(NdrmConfig.model_validate(VARIANTS[name] | sizes))
    if model.config.kind != "explicit":
        with torch.no_grad():
            model.words.weight.copy_(study.first)
    start = time.monotonic()
    losses = train(model, learned, study.hundred[0], options)
    loss = round(float(np.mean(losses[-100:])), 4)
    row: dict[str, Any] = {"model": name, "seed": options.seed, "loss": loss}
    row["train_seconds"] = round(time.monotonic() - start, 1)
    start = time.monotonic()
    wanted = np.unique(np.concatenate(judged.queries))
    scores = term_scores(model, judged, wanted)
    row["full"] = _told(_measured(judged, rank(judged, wanted, scores)), base)
    row["rerank"] = _told(_measured(judged, rank(judged, wanted, scores, among=study.hundred[1])), base)
    row["search_seconds"] = round(time.monotonic() - start, 1)
    return row


def _some(collection: Collection, count: int) -> Collection:
    """The same documents with a sample of the queries, drawn by seed 0."""
    if count >= len(collection.queries):
        return collection
    kept = sorted(np.random.default_rng(0).choice(len(collection.queries), count, replace=False).tolist())
    return replace(
        collection,
        queries=[collection.queries[place] for place in kept],
        query_ids=[collection.query_ids[place] for place in kept],
        relevant=[collection.relevant[place] for place in kept],
        negatives=None,
    )


def _told(found: Evaluation, base: Evaluation | None = None) -> dict[str, Any]:
    """Means, and with `base` the mean differences to it with their 95 % intervals over queries."""
    told: dict[str, Any] = {name: round(mean, 4) for name, mean in found.means.items()}
    if base is not None:
        told["less"] = {}
        for name, values in found.values.items():
            less = values - base.values[name]
            half = 1.96 * float(less.std(ddof=1)) / len(less) ** 0.5
            told["less"][name] = [round(float(less.mean()) + side, 4) for side in (0.0, -half, half)]
    return told


def _measured(terms: TermCollection, ranked: Rankings) -> Evaluation:
    return measured(terms.collection, (rows.tolist() for rows, _ in ranked), MEASURES)


if __name__ == "__main__":
    app()
