"""The recipe of learned impacts: a head over a model's frozen towers, trained on first-stage hits.

n   documents       t   tokens of all documents     D   hidden size     W   words       B   queries     N   a batch's documents
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from glow.artifact import file_sha256
from glow.index.postings import ImpactIndex, build_lexical
from glow.nn import TermImpacts, Tower
from glow.options import StrictModel
from glow.records import Document
from glow.runtime import Encoder, Model
from glow.text import (
    DEFAULT_ANALYZER,
    Analyzer,
    Preprocessor,
    batches_by_length,
    idf_of_words,
    is_lexical,
    lexical_tokens,
    lexical_words,
    pad,
)
from glow.training.checkpoint import TrainedImpacts, read_towers, save_impacts
from glow.training.data import Given, collection_hash, count_terms, read_collection
from glow.training.rerank import Candidates, read_candidates
from glow.training.run import (
    Adam,
    Group,
    Loss,
    Moment,
    OptimizerOptions,
    Recipe,
    RunConfig,
    check_single_process,
    floored,
    parts_hash,
)


class HeadOptions(StrictModel):
    """The head."""

    # K, of a word's and a token's direction; it decides the cost of building an index
    dimensions: int = Field(default=128, ge=1)


class ImpactsObjective(StrictModel):
    """The loss: cross-entropy of the relevant document among those of the batch, by the sum of BM25 and learned impacts."""

    negatives: int = Field(default=1, ge=0)  # non-relevant first-stage hits per query and step
    depth: int = Field(default=30, ge=1)  # rank down to which they are drawn
    # factor of the mean learned impact in the loss. It makes most impacts 0, so that pruning costs little.
    penalty: float = Field(default=1.0, ge=0.0)


class ImpactsOptimizer(OptimizerOptions):
    """The optimizer."""

    batch_size: int = Field(default=64, ge=2)  # queries per step, from one collection
    steps: int = Field(default=1600, ge=1)  # total number of steps
    learning_rate: float = Field(default=1e-3, gt=0.0)
    # steps in which the rate rises; it then falls to a fiftieth. The penalty rises for four times as many.
    warmup: int = Field(default=50, ge=1)
    # exponent of a collection's number of queries in its sampling weight; 1: proportional, 0: uniform
    balance: float = Field(default=0.75, ge=0.0, le=1.0)
    precision: Literal["fp32"] = "fp32"


class ImpactsConfig(RunConfig):
    """The configuration of a training run of learned impacts."""

    checkpoint_steps: int = Field(default=250, ge=1)
    impacts: HeadOptions
    objective: ImpactsObjective = ImpactsObjective()
    optimizer: ImpactsOptimizer = ImpactsOptimizer()


MAX_QUERY_WORDS = 20
CHUNK_DOCUMENTS, BATCH_TOKENS = 512, 8192


class WordVectors:
    """Vectors of single words by the query tower, each computed once."""

    def __init__(self, encoder: Encoder, preprocessor: Preprocessor) -> None:
        self._encoder, self._preprocessor = encoder, preprocessor
        self._places: dict[str, int] = {}
        self._vectors = np.empty((0, encoder.dimensions), np.float32)

    def add(self, words: Iterable[str]) -> None:
        """Computes the missing vectors of words."""
        new = [word for word in dict.fromkeys(words) if word not in self._places]
        self._places.update((word, len(self._places)) for word in new)
        made = self._encoder.encode([self._preprocessor.query(word) for word in new])
        self._vectors = np.concatenate([self._vectors, made])

    def of(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of added words, float32 [W, D]."""
        return self._vectors[[self._places[word] for word in words]]


class ImpactsCollection:
    """One collection."""

    def __init__(self, found: Candidates, preprocessor: Preprocessor, folder: Path) -> None:
        self.found, self._preprocessor, self._folder = found, preprocessor, folder
        collection, pieces = found.collection, preprocessor.pieces
        self.words = [
            [word for word in pieces.words(text) if is_lexical(word)][:MAX_QUERY_WORDS]
            for text in collection.queries
        ]

    @cached_property
    def bm25(self) -> ImpactIndex:
        """BM25 impacts of the documents, as in an index."""
        own, folder = self._preprocessor, self._folder / "impacts"
        analyzer = Analyzer(DEFAULT_ANALYZER)
        words = [
            list(lexical_words(each, own.schema, own.pieces)) for each in self.found.collection.documents
        ]
        build_lexical(folder, words, own.terms, analyzer.table(own.terms), analyzer=analyzer)
        return ImpactIndex.open(folder)

    def idf(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Idf of words by the collection's own statistics, float32 [W]."""
        return idf_of_words(words, self._preprocessor.terms).astype(np.float32)

    def encode(self, tower: Tower) -> None:
        """Writes the document tower's float16 embeddings of tokens that can represent words; keeps existing files."""
        path, sizes_path = self._folder / "states.f16", self._folder / "sizes.npy"
        if sizes_path.is_file():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        documents, sizes = self.found.collection.documents, []
        with path.open("wb") as file:
            for start in range(0, len(documents), CHUNK_DOCUMENTS):
                for states in self._states(tower, documents[start : start + CHUNK_DOCUMENTS]):
                    file.write(states.tobytes())
                    sizes.append(len(states))
        np.save(sizes_path, np.array(sizes, np.int64))

    def _states(self, tower: Tower, documents: Sequence[Document]) -> list[NDArray[np.float16]]:
        sequences = [self._preprocessor.document(document) for document in documents]
        made: dict[int, NDArray[np.float16]] = {}
        for rows in batches_by_length([len(sequence) for sequence in sequences], BATCH_TOKENS):
            batch = pad([sequences[row] for row in rows], self._preprocessor.pieces.pad_id)
            arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
            with torch.inference_mode():
                states = tower.states(*(torch.from_numpy(array) for array in arrays)).float().numpy()
            for place, row in enumerate(rows):
                made[row] = states[place, lexical_tokens(sequences[row])].astype(np.float16)
        return [made[row] for row in range(len(sequences))]

    @cached_property
    def _stored(self) -> tuple[NDArray[np.int64], NDArray[np.float16]]:
        sizes = np.load(self._folder / "sizes.npy")
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        flat = np.memmap(self._folder / "states.f16", np.float16, "r")
        return starts, flat.reshape(int(starts[-1]), -1)

    def states(self, rows: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token embeddings, float32 [n, L, D], and their mask, bool [n, L]; a document without tokens has a masked row."""
        starts, flat = self._stored
        sizes = starts[rows + 1] - starts[rows]
        states = np.zeros((len(rows), max(int(sizes.max(initial=0)), 1), flat.shape[1]), np.float32)
        for place, (row, size) in enumerate(zip(rows.tolist(), sizes.tolist(), strict=True)):
            states[place, :size] = flat[starts[row] : starts[row] + size]
        mask = np.arange(states.shape[1]) < sizes[:, None]
        return torch.from_numpy(states), torch.from_numpy(mask)


@dataclass(frozen=True, slots=True, eq=False)
class StateBatch:
    """A batch of queries from one collection."""

    collection: ImpactsCollection
    queries: NDArray[np.int64]  # int64 [B]
    documents: NDArray[np.int64]  # int64 [N], distinct
    relevant: NDArray[np.int64]  # int64 [B], the position of each query's relevant document


class StateBatches:
    """Draws batches; implements `glow.training.run.Data`."""

    def __init__(self, config: ImpactsConfig, collections: Sequence[ImpactsCollection]) -> None:
        self._config, self._collections = config, collections
        sizes = np.array([len(each.words) for each in collections], np.float64) ** config.optimizer.balance
        self._shares = sizes / sizes.sum()

    def steps(self, processes: int) -> int:
        """The configured number of steps."""
        return self._config.optimizer.steps

    def batch(self, step: int, process: int, processes: int) -> StateBatch:
        """The batch of a step and process, which depends only on these and the seed."""
        random = np.random.default_rng([self._config.seed, step * processes + process])
        collection = self._collections[random.choice(len(self._collections), p=self._shares)]
        found, objective = collection.found, self._config.objective
        count = min(self._config.optimizer.batch_size, len(collection.words))
        queries = random.choice(len(collection.words), count, replace=False)
        relevant = [int(random.choice(sorted(found.collection.relevant[query]))) for query in queries]
        others: list[int] = []
        for query in queries.tolist():
            rows = found.rows[query][: objective.depth]
            rows = rows[~np.isin(rows, list(found.collection.relevant[query]))]
            others += random.choice(rows, min(objective.negatives, len(rows)), replace=False).tolist()
        documents = list(dict.fromkeys(relevant + others))
        places = {row: place for place, row in enumerate(documents)}
        own = np.array([places[row] for row in relevant], np.int64)
        return StateBatch(collection, queries, np.array(documents, np.int64), own)


MAX_PRIORS = 20_000
"""Number of words whose fraction of the queries' words is stored with a head."""
LAST_RATE = 0.02
PENALTY_WARMUP = 4


def impacts_recipe(config: ImpactsConfig, given: Given, say: Callable[[str], None]) -> Recipe[StateBatch]:
    """Reads and encodes the inputs of a run of learned impacts; token embeddings go to the run's directory."""
    check_single_process("learned impacts are trained")
    what = "learned impacts ([impacts])"
    given.refuse(what, "negatives", "teacher", "corpora", "dev", "dev_candidates")
    given.require_candidates("learned impacts are trained")
    model = Model.open(given.init)
    say("reading data")
    collections = list(_collections(model, given, config.objective.depth))
    say("encoding documents")
    tower = read_towers(model).document
    for each in collections:
        each.encode(tower)
    say("encoding words")
    words = WordVectors(model.encoder("query", threads=torch.get_num_threads()), model.preprocessor)
    for each in collections:
        words.add(word for query in each.words for word in query)
    torch.manual_seed(config.seed)
    head = TermImpacts(model.encoder("query").dimensions, config.impacts.dimensions)
    loss, priors = ImpactLoss(config, head, words), _priors(collections)
    return Recipe(
        config,
        StateBatches(config, collections),
        head,
        loss,
        lambda out, report: save_impacts(out, TrainedImpacts(head.eval(), model.hash, priors, report)),
        [
            model.hash,
            *map(file_sha256, given.candidates),
            *(collection_hash(each.found.collection) for each in collections),
        ],
        [Group("", decay=True)],
        adam=Adam(eps=1e-8),
        rate=floored(config.optimizer.warmup, LAST_RATE),
        about={
            "model": model.label,
            "data": [each.found.collection.about(given.split) for each in collections],
        },
        on_cpu=True,
    )


class ImpactLoss(nn.Module):
    """A head with its loss: cross-entropy of the relevant documents, plus the mean impact of words."""

    def __init__(self, config: ImpactsConfig, head: TermImpacts, words: WordVectors) -> None:
        super().__init__()
        self.head = head
        self._config, self._words = config, words

    def forward(self, batch: StateBatch, moment: Moment) -> Loss:
        """The loss of a batch."""
        asked = [batch.collection.words[query] for query in batch.queries.tolist()]
        scores, impacts = self.scores(batch.collection, asked, batch.documents)
        scores = scores.masked_fill(_also_relevant(batch), -torch.inf)
        loss = functional.cross_entropy(scores, torch.from_numpy(batch.relevant))
        penalty = impacts.mean()
        ramp = min(1.0, moment.step / (PENALTY_WARMUP * self._config.optimizer.warmup))
        whole = loss + self._config.objective.penalty * ramp * penalty
        return Loss(whole, len(asked), {"penalty": float(penalty.detach())}, shown=loss)

    def scores(
        self,
        collection: ImpactsCollection,
        asked: Sequence[Sequence[str]],
        documents: np.ndarray,  # int64 [N]
    ) -> tuple[Tensor, Tensor]:
        """Scores of documents by BM25 and learned impacts, float [B, N], and impacts of the queries' distinct words, float [W, N]."""
        words = list(dict.fromkeys(word for query in asked for word in query))
        places = {word: place for place, word in enumerate(words)}
        directions, gains = self.head.words(
            torch.from_numpy(self._words.of(words)), torch.from_numpy(collection.idf(words))
        )
        states, mask = collection.states(documents)
        impacts = self.head(directions, gains, self.head.tokens(states), mask)
        counts = torch.zeros(len(asked), len(words))
        for row, query in enumerate(asked):
            for word in query:
                counts[row, places[word]] += 1.0
        bm25 = np.stack([collection.bm25.score(list(query), documents) for query in asked])
        return counts @ impacts + self.head.bm25_weight * torch.from_numpy(bm25), impacts


def _also_relevant(batch: StateBatch) -> Tensor:
    """Relevant documents of each query in the batch except its own target, bool [B, N]."""
    relevant = batch.collection.found.collection.relevant
    masks = np.stack([np.isin(batch.documents, list(relevant[query])) for query in batch.queries.tolist()])
    masks[np.arange(len(masks)), batch.relevant] = False
    return torch.from_numpy(masks)


def _collections(model: Model, given: Given, depth: int) -> Iterator[ImpactsCollection]:
    own = model.preprocessor
    for number, (folder, run) in enumerate(zip(given.data, given.candidates, strict=True)):
        collection = read_collection(folder, given.split, own.schema)
        found = read_candidates(run, collection, depth)
        terms = count_terms([collection], own.schema, own.pieces)
        # Token embeddings are keyed by content: a directory may change its texts and keep its name.
        key = parts_hash([model.hash, collection_hash(collection)])[:12]
        place = given.run_folder / f"{given.split}-{number}-{collection.name}-{key}"
        yield ImpactsCollection(found, model.with_terms(terms), place)


def _priors(collections: Sequence[ImpactsCollection]) -> dict[str, float]:
    """Each word's fraction of the queries' words, with equal weight for each collection."""
    shares: dict[str, float] = {}
    for each in collections:
        counts = Counter(word for words in each.words for word in words)
        total = (counts.total() or 1) * len(collections)
        for word, count in counts.items():
            shares[word] = shares.get(word, 0.0) + count / total
    return dict(sorted(shares.items(), key=lambda share: -share[1])[:MAX_PRIORS])
