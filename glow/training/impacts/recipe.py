"""The recipe of learned impacts: a head over a model's frozen towers, trained on first-stage hits."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from glow.artifact import file_sha256
from glow.nn import TermImpacts
from glow.runtime import Model
from glow.training.candidates import read_candidates
from glow.training.data import count_terms, read_collection
from glow.training.fingerprint import collection_hash
from glow.training.from_model import read_towers
from glow.training.given import Given
from glow.training.impacts.checkpoint import TrainedImpacts, save_impacts
from glow.training.impacts.collection import ImpactsCollection, WordVectors
from glow.training.impacts.config import ImpactsConfig
from glow.training.impacts.states import StateBatch, StateBatches
from glow.training.run import (
    Adam,
    Group,
    Loss,
    Measures,
    Moment,
    Recipe,
    check_single_process,
    floored,
    parts_hash,
)
from glow.training.watch import reciprocal_ranks

__all__ = ["ImpactLoss", "impacts_recipe"]

MAX_PRIORS = 20_000
"""Number of words whose fraction of the queries' words is stored with a head."""
LAST_RATE = 0.02
PENALTY_WARMUP = 4


def impacts_recipe(config: ImpactsConfig, given: Given, say: Callable[[str], None]) -> Recipe[StateBatch]:
    """Reads and encodes the inputs of a run of learned impacts; token embeddings go to the run's directory.

    Raises:
        ConfigError: if the numbers of candidate runs and data directories differ, or there are several processes.
        GlowError: if data, model or configuration are not usable.
    """
    check_single_process("learned impacts are trained")
    what = "learned impacts ([impacts])"
    given.refuse(what, "synthesize", "synthesis_model", "negatives", "teacher", "corpora", "minutes")
    given.require_candidates("learned impacts are trained")
    model = Model.open(given.init)
    say("reading data")
    depth, dev = config.objective.depth, (given.dev, given.dev_candidates, "dev")
    collections = list(_collections(model, given, depth, given.data, given.candidates, given.split))
    watched = list(_collections(model, given, depth, *dev)) if config.watch.steps else []
    say("encoding documents")
    tower = read_towers(model).document
    for each in (*collections, *watched):
        each.encode(tower)
    say("encoding words")
    words = WordVectors(model.encoder("query", threads=torch.get_num_threads()), model.preprocessor)
    for each in (*collections, *watched):
        words.add(word for query in each.words for word in query)
        words.add(each.vocabulary[0])
    torch.manual_seed(config.seed)
    head = TermImpacts(model.encoder("query").dimensions, config.impacts.dimensions)
    loss, priors = ImpactLoss(config, head, words), _priors(collections)
    about = [
        {
            "name": each.found.collection.name,
            "split": given.split,
            "documents": len(each.found.collection.documents),
            "queries": len(each.words),
        }
        for each in collections
    ]
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
            *_deciding(config, given, watched),
        ],
        [Group("", decay=True)],
        adam=Adam(eps=1e-8),
        rate=floored(config.optimizer.warmup, LAST_RATE),
        measures=_measures(config, loss, watched),
        about={"model": model.label, "data": about},
        on_cpu=True,
    )


class ImpactLoss(nn.Module):
    """A head with its loss: cross-entropy of the relevant documents, plus the mean impact of words.

    Args:
        config: the run's configuration.
        head: the head to train.
        words: vectors of every word of the collections' queries and vocabularies.
    """

    def __init__(self, config: ImpactsConfig, head: TermImpacts, words: WordVectors) -> None:
        super().__init__()
        self.head = head
        self._config, self._words = config, words

    def forward(self, batch: StateBatch, moment: Moment) -> Loss:
        """The loss of a batch."""
        asked = [batch.collection.words[query] for query in batch.queries.tolist()]
        scores, impacts, count = self.scores(batch.collection, asked, batch.documents, batch.drawn)
        scores = scores.masked_fill(_also_relevant(batch), -torch.inf)
        loss = functional.cross_entropy(scores, torch.from_numpy(batch.relevant))
        penalty = impacts[:count].mean()
        if len(impacts) > count:
            penalty = penalty + impacts[count:].mean()
        ramp = min(1.0, moment.step / (PENALTY_WARMUP * self._config.optimizer.warmup))
        whole = loss + self._config.objective.penalty * ramp * penalty
        return Loss(whole, len(asked), {"penalty": float(penalty.detach())}, shown=loss)

    def scores(
        self,
        collection: ImpactsCollection,
        asked: Sequence[Sequence[str]],
        documents: np.ndarray,
        drawn: Sequence[str] = (),
    ) -> tuple[Tensor, Tensor, int]:
        """Scores of documents by BM25 and learned impacts of the queries' words.

        Args:
            collection: the documents' collection.
            asked: words of each query.
            documents: int64 [N].
            drawn: further words.

        Returns:
            Scores float [B, N]; impacts float [W + drawn, N] of the queries' distinct words and the further ones; W.
        """
        words = list(dict.fromkeys(word for query in asked for word in query))
        places = {word: place for place, word in enumerate(words)}
        every = [*words, *drawn]
        directions, gains = self.head.words(
            torch.from_numpy(self._words.of(every)), torch.from_numpy(collection.idf(every))
        )
        states, mask = collection.states(documents)
        impacts = self.head(directions, gains, self.head.tokens(states), mask)
        counts = torch.zeros(len(asked), len(words))
        for row, query in enumerate(asked):
            for word in query:
                counts[row, places[word]] += 1.0
        bm25 = np.stack([collection.bm25.score(list(query), documents) for query in asked])
        scores = counts @ impacts[: len(words)] + self.head.bm25_weight * torch.from_numpy(bm25)
        return scores, impacts, len(words)


def _also_relevant(batch: StateBatch) -> Tensor:
    """Relevant documents of each query in the batch except its own target, bool [B, N]."""
    relevant = batch.collection.found.collection.relevant
    masks = np.stack([np.isin(batch.documents, list(relevant[query])) for query in batch.queries.tolist()])
    masks[np.arange(len(masks)), batch.relevant] = False
    return torch.from_numpy(masks)


def _measures(
    config: ImpactsConfig, loss: ImpactLoss, watched: Sequence[ImpactsCollection]
) -> Measures | None:
    """RR@10 of the development sets' candidates by the sum of BM25 and learned impacts."""
    if not watched:
        return None

    def measure(moment: Moment) -> dict[str, float]:
        figures = {}
        for each in watched:
            ranks = [
                _rank(loss, each, query) for query in range(len(each.words))[: config.watch.queries or None]
            ]
            figures[each.found.collection.name] = float(np.mean(ranks))
        return figures

    return measure


def _rank(loss: ImpactLoss, collection: ImpactsCollection, query: int) -> float:
    rows = collection.found.rows[query]
    relevant = collection.found.collection.relevant[query]
    places = frozenset(np.flatnonzero(np.isin(rows, list(relevant))).tolist())
    if not places or not collection.words[query]:
        return 0.0
    with torch.no_grad():
        scores, _, _ = loss.scores(collection, [collection.words[query]], rows)
    return float(reciprocal_ranks(scores.numpy(), [places])[0])


def _collections(
    model: Model, given: Given, depth: int, folders: Sequence[Path], runs: Sequence[Path], split: str
) -> Iterator[ImpactsCollection]:
    own = model.preprocessor
    for number, (folder, run) in enumerate(zip(folders, runs, strict=True)):
        collection = read_collection(folder, split, own.schema)
        found = read_candidates(run, collection, depth)
        terms = count_terms([collection], own.schema, own.pieces)
        # Token embeddings are keyed by content: a directory may change its texts and keep its name.
        key = parts_hash([model.hash, collection_hash(collection)])[:12]
        place = given.run_folder / f"{split}-{number}-{collection.name}-{key}"
        yield ImpactsCollection(found, model.with_terms(terms), place)


def _deciding(config: ImpactsConfig, given: Given, watched: Sequence[ImpactsCollection]) -> list[str]:
    """Hashes of the development sets if they decide the run's end."""
    if not config.watch.patience:
        return []
    return [
        *map(file_sha256, given.dev_candidates),
        *(collection_hash(each.found.collection) for each in watched),
    ]


def _priors(collections: Sequence[ImpactsCollection]) -> dict[str, float]:
    """Each word's fraction of the queries' words, with equal weight for each collection."""
    shares: dict[str, float] = {}
    for each in collections:
        counts = each.word_counts()
        total = (counts.total() or 1) * len(collections)
        for word, count in counts.items():
            shares[word] = shares.get(word, 0.0) + count / total
    return dict(sorted(shares.items(), key=lambda share: -share[1])[:MAX_PRIORS])
