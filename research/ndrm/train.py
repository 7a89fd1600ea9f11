"""Training by RankNet as in the paper: one relevant document, one from BM25's hundred, two at random (section 5.3).

B   queries of a batch      D   documents of a query, 4     T   terms of a query
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glow.nn import Ndrm
from glow.training.impacts import ranknet_loss
from research.ndrm.words import TermCollection

__all__ = ["Options", "scores_of", "train"]

RANDOM = 2
GRADES = (2.0, 1.0, 0.0, 0.0)


class Options:
    """How long and how fast; the rest is the paper's.

    Args:
        steps, batch_size: of training.
        rate: of Adam, which the paper has at 1e-4 for 131,072 steps.
        seed: of every random choice.
    """

    def __init__(self, steps: int, batch_size: int = 32, rate: float = 1e-3, seed: int = 0) -> None:
        self.steps, self.batch_size, self.rate, self.seed = steps, batch_size, rate, seed


def train(
    model: Ndrm,
    terms: TermCollection,
    hundred: Sequence[NDArray[np.int64]],
    options: Options,
    tell: Callable[[int, float], None] = lambda step, loss: None,
) -> list[float]:
    """Trains a model in place; returns the loss of every step.

    Args:
        model: of any kind.
        terms: the collection.
        hundred: BM25's best documents of each query.
        options: how long and how fast.
        tell: told step and loss.
    """
    torch.manual_seed(options.seed)
    random = np.random.default_rng(options.seed)
    optimizer = torch.optim.Adam(model.parameters(), options.rate)
    usable = [number for number, query in enumerate(terms.queries) if len(query)]
    losses = []
    model.train()
    for step in range(options.steps):
        queries = random.choice(usable, options.batch_size, replace=False)
        rows = np.stack([_documents(terms, hundred, int(query), random) for query in queries])
        rate = options.rate * max(0.02, 1.0 - step / options.steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        scores = scores_of(model, terms, queries.tolist(), rows)
        loss = ranknet_loss(scores, torch.tensor(GRADES).expand(len(queries), -1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
        tell(step + 1, losses[-1])
    model.eval()
    return losses


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
