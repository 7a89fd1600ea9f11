"""Trains the projection of tokens: floats as the teacher, or relevant documents (docs/results/late-interaction.md).

B   queries of a step       K   documents of a query        P   numbers of a token      t   tokens of all texts of a step
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from research.late.candidates import Candidates, open_candidates
from research.late.forms import REFERENCE, column
from research.late.ranking import Weights
from research.late.states import StateStore, open_states
from research.late.tokens import Form

__all__ = ["OBJECTIVES", "SERVED", "SHIPPED", "Learning", "open_learning", "train_projection"]

SHIPPED = Form(128, 1, 0, False)
SERVED = Weights(late=0.65, words=0.2045)
OBJECTIVES = ("floats", "relevant")
SCALE = 24.7
"""Times the evidence in a softmax over a query's candidates (docs/results/late-interaction.md)."""
TEACHER_SCALE = 30.0
QUERIES, DOCUMENTS, DEPTH = 8, 16, 50
KEPT_SHARE = 0.1
WARMUP = 20


@dataclass(frozen=True, slots=True, eq=False)
class Learning:
    """Training queries of one kind.

    Attributes:
        candidates: without late interaction.
        floats, shipped: float32 [m], late interaction by all numbers, and as it ships.
        queries, documents: their tokens.
        usable: int64, queries with a relevant document among their candidates, in an order drawn once; a tenth is kept.
    """

    candidates: Candidates
    floats: NDArray[np.float32]
    shipped: NDArray[np.float32]
    queries: StateStore
    documents: StateStore
    usable: NDArray[np.int64]

    @property
    def rest(self) -> NDArray[np.float32]:
        """What the served sum has beside late interaction, float32 [m]."""
        each = self.candidates
        words = each.of_query(each.uncertainty) * each.impacts / np.float32(each.scale)
        return ((1 - SERVED.late) * each.cosine + SERVED.words * words).astype(np.float32)

    def split(self, kept: bool) -> NDArray[np.int64]:
        """Queries that choose rate and steps, or those that train."""
        at = int(len(self.usable) * KEPT_SHARE)
        return self.usable[:at] if kept else self.usable[at:]


def open_learning(name: str, work: Path) -> Learning:
    """Opens what `gather`, `encode_documents` and `make_columns` wrote of one kind of training queries."""
    candidates = open_candidates(name, work)
    usable = np.unique(candidates.pairs.queries)
    return Learning(
        candidates,
        column(REFERENCE, name, work),
        column(SHIPPED, name, work),
        open_states(work / name / "queries"),
        open_states(work / name / "documents"),
        np.random.default_rng(0).permutation(usable),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """One step's queries and documents; `places` int64 [B, K] among candidates, the relevant one first for `relevant`."""

    source: Learning
    numbers: NDArray[np.int64]
    places: NDArray[np.int64]


class _Step:
    """The loss of a batch.

    Args:
        objective: one of `OBJECTIVES`.
        directions: float32 [H, P], a parameter.
        scale: the logarithm of the student's scale, a parameter.
    """

    def __init__(self, objective: str, directions: Tensor, scale: Tensor) -> None:
        self._objective, self._directions, self._scale = objective, directions, scale

    def __call__(self, batch: _Batch) -> Tensor:
        """A scalar."""
        source, shape = batch.source, batch.places.shape
        rows = source.candidates.rows[batch.places].reshape(-1).tolist()
        late = self._late(batch, rows)  # [B, B · K]
        own = torch.arange(shape[0])[:, None] * shape[1] + torch.arange(shape[1])
        if self._objective == "floats":
            wanted = functional.log_softmax(
                TEACHER_SCALE * torch.from_numpy(source.floats[batch.places]), dim=1
            )
            found = functional.log_softmax(self._scale.exp() * late.gather(1, own), dim=1)
            return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)
        # Documents of other queries share no word with this one, as far as this loss goes.
        vectors = source.documents.vectors[rows] @ source.queries.vectors[batch.numbers].T
        rest = torch.from_numpy((1 - SERVED.late) * vectors.T.astype(np.float32))
        rest = rest.scatter(1, own, torch.from_numpy(source.rest[batch.places]))
        logits = self._scale.exp() * (rest + SERVED.late * late)
        logits = logits.masked_fill(self._also_relevant(batch, rows, own), -torch.inf)
        return functional.cross_entropy(logits, own[:, 0])

    def _also_relevant(self, batch: _Batch, rows: list[int], own: Tensor) -> Tensor:
        """Relevant documents but the one that is asked for, and copies of it; bool [B, B · K]."""
        each = batch.source.candidates
        masked = np.zeros((len(batch.numbers), len(rows)), np.bool_)
        for at, number in enumerate(batch.numbers.tolist()):
            span = slice(int(each.starts[number]), int(each.starts[number + 1]))
            masked[at] = np.isin(rows, each.rows[span][each.grades[span] > 0])
            masked[at, int(own[at, 0])] = False
        return torch.from_numpy(masked)

    def _late(self, batch: _Batch, rows: Sequence[int]) -> Tensor:
        """MaxSim of every query against every document of the step, float32 [B, B · K]."""
        source = batch.source
        asked = [source.queries[number].states for number in batch.numbers.tolist()]
        read = [source.documents[row] for row in rows]
        texts = [each.states[SHIPPED.chosen(each)] for each in read]
        numbers = functional.normalize(torch.from_numpy(np.concatenate(texts)) @ self._directions, dim=1)
        signs = torch.where(numbers >= 0, 1.0, -1.0) / numbers.shape[1] ** 0.5
        # Backwards, a sign is the number itself.
        tokens = numbers + (signs - numbers).detach()
        query = functional.normalize(torch.from_numpy(np.concatenate(asked)) @ self._directions, dim=1)
        similarities = tokens @ query.T  # [t, q]
        starts = np.cumsum([0, *(len(each) for each in texts)])
        places = torch.from_numpy(np.repeat(np.arange(len(texts)), np.diff(starts)))
        best = torch.full((len(texts), len(query)), -2.0).scatter_reduce(
            0, places[:, None].expand(-1, len(query)), similarities, "amax"
        )
        means = [part.mean(1) for part in torch.split(best, [len(each) for each in asked], dim=1)]
        return torch.stack(means)


def _draw(
    source: Learning, numbers: NDArray[np.int64], objective: str, random: np.random.Generator
) -> _Batch:
    """Documents of the first fifty by what is served, drawn evenly; for `relevant` a relevant one first."""
    each, places = source.candidates, []
    for number in numbers.tolist():
        span = np.arange(each.starts[number], each.starts[number + 1])
        served = source.rest[span] + SERVED.late * source.shipped[span]
        first = span[np.argsort(-served, kind="stable")[:DEPTH]]
        if objective == "floats":
            places.append(random.choice(first, DOCUMENTS, len(first) < DOCUMENTS))
            continue
        relevant = random.choice(span[each.grades[span] > 0], 1)
        others = first[each.grades[first] <= 0]
        drawn = random.choice(others, DOCUMENTS - 1, len(others) < DOCUMENTS - 1)
        places.append(np.concatenate([relevant, drawn]))
    return _Batch(source, numbers, np.stack(places))


def train_projection(
    objective: str,
    sources: Sequence[Learning],
    start: NDArray[np.float32],
    seed: int,
    steps: int,
    rate: float,
    every: int,
    say: Callable[[str], None],
) -> tuple[NDArray[np.float32], dict[int, float]]:
    """Trains by Adam, the rate falling to 0 along a line.

    Args:
        objective: one of `OBJECTIVES`.
        sources: training queries; each step has those of one, by their numbers of queries.
        start: float32 [H, P].
        seed: of order and draws.
        steps, rate: how long, and how far.
        every: steps between two looks at the queries that are kept.
        say: told of every look.

    Returns:
        float32 [H, P], and the loss over kept queries by step.
    """
    directions = torch.nn.Parameter(torch.from_numpy(start.copy()))
    scale = torch.nn.Parameter(
        torch.tensor(np.log(TEACHER_SCALE if objective == "floats" else SCALE)).float()
    )
    step = _Step(objective, directions, scale)
    optimizer = torch.optim.Adam(
        [{"params": [directions], "lr": rate}, {"params": [scale], "lr": 0.01}], betas=(0.9, 0.98)
    )
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda at: min(1.0, (at + 1) / WARMUP) * (1 - at / (steps + 1))
    )
    random = np.random.default_rng([35, seed])
    numbers = [source.split(kept=False) for source in sources]
    shares = np.array([len(each) for each in numbers]) / sum(len(each) for each in numbers)
    losses, looks = [], {0: _kept_loss(step, objective, sources)}
    for at in range(1, steps + 1):
        which = int(random.choice(len(sources), p=shares))
        batch = _draw(sources[which], random.choice(numbers[which], QUERIES, False), objective, random)
        loss = step(batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rates.step()
        losses.append(float(loss.detach()))
        if at % every == 0 or at == steps:
            looks[at] = _kept_loss(step, objective, sources)
            say(f"{objective} {seed}: step {at}, loss {np.mean(losses[-every:]):.4f}, kept {looks[at]:.4f}")
    return directions.detach().numpy().copy(), looks


def _kept_loss(step: _Step, objective: str, sources: Sequence[Learning]) -> float:
    """The mean over sources, with the same draws each time."""
    means = []
    for source in sources:
        kept, random = source.split(kept=True), np.random.default_rng(1)
        blocks = [kept[at : at + QUERIES] for at in range(0, len(kept) - QUERIES + 1, QUERIES)]
        with torch.no_grad():
            found = [float(step(_draw(source, block, objective, random))) for block in blocks]
        means.append(np.mean(found))
    return float(np.mean(means))
