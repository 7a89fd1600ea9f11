"""Trains by RankNet as in the paper: one relevant document, one of BM25's top hundred, two random ones (section 5.3).

B   queries of a batch      D   documents of a query, 4     T   terms of a query
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glow.training.run import Moment, OptimizerOptions
from research.ndrm.model import Ndrm
from research.ndrm.words import TermCollection
from research.steps import UNCLIPPED, Draws, take_steps

__all__ = ["Options", "ranknet_loss", "scores_of", "train"]

RANDOM = 2
GRADES = (2.0, 1.0, 0.0, 0.0)
LAST_RATE = 0.02
Batch = tuple[list[int], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Options:
    """Training options; the others are the paper's.

    Attributes:
        steps, batch_size: steps, and queries per batch.
        rate: Adam's learning rate; the paper has 1e-4 for 131,072 steps.
        seed: seed of every random choice.
    """

    steps: int
    batch_size: int = 32
    rate: float = 1e-3
    seed: int = 0


def train(
    model: Ndrm, terms: TermCollection, hundred: Sequence[NDArray[np.int64]], options: Options
) -> list[float]:
    """Trains a model in place; returns the loss of every step.

    Args:
        model: a model of any kind.
        terms: the collection.
        hundred: BM25's best documents of each query.
        options: the training options.
    """
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

    Source: Conformer-Kernel with query term independence, section 5.3; the constant is the released code's.

    Args:
        scores, grades: float [B, N]; queries without such a pair do not count.
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
    longest = max(max(len(terms.queries[query]) for query in queries), 1)
    ids = np.zeros((len(queries), longest), np.int64)
    mask = np.zeros((len(queries), longest), np.bool_)
    for place, query in enumerate(queries):
        ids[place, : len(terms.queries[query])] = terms.queries[query]
        mask[place, : len(terms.queries[query])] = True
    asked, real = torch.from_numpy(ids), torch.from_numpy(mask)
    given = terms.statistics(asked, rows, real)
    latent = None
    if model.config.kind != "explicit":
        documents, present = terms.padded(rows.reshape(-1).tolist())
        shape = (*rows.shape, documents.shape[1])
        context = model.document(documents, present).reshape(*shape, -1)
        words = model.query_words(asked, real)[:, None]
        latent = model.latent(words, context, present.reshape(shape))
    return model.combine(latent, given).sum(-1)
