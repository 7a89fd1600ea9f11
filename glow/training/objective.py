"""The loss of two towers over a batch of pairs.

Sources: GLOW section 3.8, Eq. 10; the released code's NCE sampling as in docs/papers.md 1.6.

    B           pairs in a batch                H   hidden size         W   a teacher's dimensions
    M           documents in it: those of the pairs, then mined hard negatives if there are any
    cosines     float [B, M], cos(q_i, d_j); the pairs are on the diagonal
    blocked     bool [B, M], True where d_j may not serve as a negative of q_i
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from glow.nn import Tower, TwoTowers
from glow.text import WeightedTokens
from glow.training.checkpoint import TEACHER_MAP
from glow.training.config import ObjectiveConfig, Side, TrainConfig
from glow.training.data import PairBatch, PairBatches
from glow.training.encode import CachedBatch, Encoding, encode
from glow.training.run import Loss, Moment
from glow.training.teacher import Aims


def blocked_negatives(relevant: Tensor, query_cosines: Tensor, query_mask: float) -> Tensor:
    """Marks the documents of the batch that cannot serve as negatives of a query.

    `relevant` is bool [B, M], True if d_j is known to be relevant to q_i (the pair itself, the same document, an equal document or query text, another judged pair).
    `query_cosines` is float [B, B], cos(q_i, q_j) of the current model.
    Returns bool [B, M]; the diagonal is always blocked.
    """
    blocked = relevant.clone()
    pairs = blocked[:, : len(relevant)]
    pairs |= query_cosines.detach() > query_mask
    pairs.fill_diagonal_(True)
    return blocked


def sample_negatives(
    cosines: Tensor, blocked: Tensor, inverse_temperature: float, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Draws one in-batch negative per query, close ones more likely; no gradient flows through the draw.

    This differs from the released code: a query whose whole batch is blocked gets no negative, while the code
    would draw a false one (docs/papers.md, row 15).

    `cosines`, `blocked`: [B, M].
    Returns drawn columns int64 [B], and bool [B], False if there was nothing to draw.
    """
    legal = ~blocked.all(1)
    logits = (cosines.detach().float() * inverse_temperature).masked_fill(blocked, -torch.inf)
    logits = logits.masked_fill(~legal[:, None], 0.0)
    return torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1), legal


class BceObjective(nn.Module):
    """Binary cross-entropy of a·cos + c over the given pairs and one sampled negative per query."""

    def __init__(
        self, scale: float, shift: float, learn: bool, nce_weight: float, inverse_temperature: float
    ) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(float(scale)), requires_grad=learn)
        self.shift = nn.Parameter(torch.tensor(float(shift)), requires_grad=learn)
        self.nce_weight = nce_weight
        self.inverse_temperature = inverse_temperature

    def pairs(self, cosines: Tensor, labels: Tensor) -> Tensor:
        """Mean of Eq. 10 over given pairs; cosines and labels are float [B]."""
        logits = self.scale * cosines + self.shift
        return functional.binary_cross_entropy_with_logits(logits, labels)

    def forward(
        self,
        cosines: Tensor,
        blocked: Tensor,
        labels: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The whole loss, a scalar; `labels` float [B] of the given pairs default to 1.

        Mined negatives are given pairs of label 0, with the same total weight as the positives; the papers over-sample
        positives to equal numbers. The draw excludes the negatives of the query itself and of pairs that are blocked for
        it, as the released code does with the rows of similar queries (docs/papers.md 1.6).
        """
        given = cosines.diagonal()
        positive = self.pairs(given, torch.ones_like(given) if labels is None else labels)
        mined = _mined(cosines, blocked)
        if len(mined):
            positive = 0.5 * (positive + self.pairs(mined, torch.zeros_like(mined)))
        undrawn = _undrawn(blocked)
        columns, legal = sample_negatives(cosines, undrawn, self.inverse_temperature, generator)
        if not bool(legal.any()):
            return positive
        drawn = cosines.gather(1, columns[:, None]).squeeze(1)[legal]
        negative = self.pairs(drawn, torch.zeros_like(drawn))
        return (1.0 - self.nce_weight) * positive + self.nce_weight * negative


def _mined(cosines: Tensor, blocked: Tensor) -> Tensor:
    """Cosines of each query with its mined negatives that are not relevant, float [m]."""
    pairs, documents = cosines.shape
    each = (documents - pairs) // pairs
    own = torch.arange(pairs, documents, device=cosines.device).reshape(pairs, each)
    return cosines.gather(1, own)[~blocked.gather(1, own)]


def _undrawn(blocked: Tensor) -> Tensor:
    """Documents that the draw excludes, bool [B, M]: if pair j is blocked, so are the documents mined for it.

    In the released code a mined negative is a separate row, masked by its query like every other row. Without this, a
    draw that is almost argmax takes the query's own mined negative each time, and counts it twice.
    """
    pairs, documents = blocked.shape
    of_pairs = blocked[:, :pairs]
    mined = of_pairs.repeat_interleave((documents - pairs) // pairs, dim=1)
    return blocked | torch.cat([of_pairs, mined], dim=1)


def softmax_loss(cosines: Tensor, blocked: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of each pair against the batch's other documents, averaged over queries.

    `cosines`, `blocked`: [B, M]; blocked documents are excluded, except the pair itself.
    """
    same = torch.eye(*cosines.shape, dtype=torch.bool, device=cosines.device)
    logits = (cosines / temperature).masked_fill(blocked & ~same, -torch.inf)
    return functional.cross_entropy(logits, torch.arange(len(cosines), device=cosines.device))


def embedding_loss(vectors: Tensor, wanted: Tensor) -> Tensor:
    """Mean of 1 - cosine to a teacher's vectors, both float [n, H], L2-normalized."""
    return (1.0 - (vectors * wanted).sum(-1)).mean()


def list_loss(cosines: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """Divergence KL(teacher || student) of the softmax over the batch's documents, averaged over queries.

    `cosines`, `wanted`: [B, M] of student and teacher; nothing is blocked, because the teacher judges.
    """
    logits = (cosines / temperature).log_softmax(-1)
    return functional.kl_div(
        logits, (wanted / temperature).log_softmax(-1), log_target=True, reduction="batchmean"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """A teacher's vectors of one collection's queries and documents; None for a side that the objective does not use."""

    queries: Aims | None
    documents: Aims | None
    lexical: Callable[[PairBatch], NDArray[np.float32]] | None = None
    """The lexical additions to the cosines of a batch, float32 [B, M], if the objective uses them."""

    def of(self, batch: PairBatch) -> tuple[Tensor, ...]:
        """The vectors of a batch: float32 [B, W] and [M, W], without the side that has none."""
        sides = ((self.queries, batch.queries), (self.documents, batch.documents))
        return tuple(torch.from_numpy(vectors[rows]) for vectors, rows in sides if vectors is not None)


class Objective(nn.Module):
    """The loss of vectors of queries [B, H] and documents [M, H], and figures for the report.

    If the teacher's dimensions W (`teacher`; 0: no teacher) differ from H, a linear map of its vectors is learned.
    """

    def __init__(self, config: ObjectiveConfig, hidden: int = 0, teacher: int = 0) -> None:
        super().__init__()
        self.config = config
        self.bce = BceObjective(
            config.scale,
            config.shift,
            config.learn_scale and config.kind == "bce",
            config.nce_weight,
            config.inverse_temperature,
        )
        self.map: nn.Linear | None = None
        if teacher and teacher != hidden:
            self.map = nn.Linear(teacher, hidden, bias=False)
            nn.init.orthogonal_(self.map.weight)  # it preserves angles as far as the width allows

    def mapped(self, wanted: Tensor) -> Tensor:
        """Maps a teacher's vectors [n, W] to the width of the towers, [n, H], L2-normalized.

        Only the list trains the map. If the cosine also did, all texts would get almost the same vector.
        """
        return wanted if self.map is None else functional.normalize(self.map(wanted), dim=-1)

    def forward(
        self,
        queries: Tensor,
        documents: Tensor,
        relevant: Tensor,  # bool [B, M]
        wanted: Sequence[Tensor] = (),
        # float32 [B, M], the lexical additions to the cosines of the teacher's list
        lexical: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss, a scalar, and means of the weighted cosine (a·cos + c, GLOW section 3.8) of pairs and nearest negatives.

        `queries`, `documents`: float32 [B, H] and [M, H], L2-normalized.
        """
        cosines = queries @ documents.T
        blocked = blocked_negatives(relevant, queries.detach() @ queries.detach().T, self.config.query_mask)
        loss = self._contrast(cosines, blocked)
        if wanted:
            if self.config.distill_weight:
                loss = loss + self.config.distill_weight * self._distance((queries, documents), wanted)
            if self.config.list_weight:
                loss = loss + self.config.list_weight * self._list(cosines, wanted, lexical)
        return loss, self._figures(cosines.detach(), blocked)

    def alone(
        self, vectors: Tensor, wanted: Tensor, others: Tensor | None = None, *, are_queries: bool = True
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss of distilling one tower alone, a scalar, and the mean cosine to the teacher.

        `vectors` is float32 [n, H], L2-normalized.
        `wanted`, `others`: the teacher's vectors of the same texts [n, W] and of the batch's other side [m, W].
        """
        distance = embedding_loss(vectors, self.mapped(wanted).detach())
        loss = self.config.distill_weight * distance
        if self.config.list_weight and others is not None:
            found, aim = vectors @ self.mapped(others).T, wanted @ others.T
            if not are_queries:
                found, aim = found.T, aim.T
            loss = loss + self.config.list_weight * list_loss(found, aim, self.config.list_temperature)
        return loss, {"teacher": 1.0 - float(distance.detach())}

    def _contrast(self, cosines: Tensor, blocked: Tensor) -> Tensor:
        if self.config.kind == "bce":
            return self.bce(cosines, blocked)  # type: ignore[no-any-return]
        if self.config.kind == "softmax":
            return softmax_loss(cosines, blocked, self.config.temperature)
        return torch.zeros((), device=cosines.device)

    def _distance(self, vectors: tuple[Tensor, Tensor], wanted: Sequence[Tensor]) -> Tensor:
        """The cosine distances of queries and of documents to the teacher's vectors."""
        first, second = (
            embedding_loss(each, self.mapped(aim).detach()) for each, aim in zip(vectors, wanted, strict=True)
        )
        return first + second

    def _list(self, cosines: Tensor, wanted: Sequence[Tensor], lexical: Tensor | None) -> Tensor:
        """The divergence from the list of the teacher, or of the towers themselves plus the lexical part."""
        own = self.config.list_cosines == "own"
        scores = cosines.detach() if own else wanted[0] @ wanted[1].T
        if lexical is not None:
            scores = scores + self.config.list_lexical * lexical
        return list_loss(cosines, scores, self.config.list_temperature)

    def _figures(self, cosines: Tensor, blocked: Tensor) -> dict[str, float]:
        if self.config.kind == "bce":
            scale, shift = float(self.bce.scale.detach()), float(self.bce.shift.detach())
        else:
            scale, shift = 1.0 / self.config.temperature, 0.0
        nearest = cosines.masked_fill(blocked, -1.0).max(1).values
        return {
            "positive": scale * float(cosines.diagonal().mean()) + shift,
            "negative": scale * float(nearest.mean()) + shift,
        }


class TowerLoss(nn.Module):
    """Both towers and their objective; `init` may include the map of a teacher's vectors."""

    def __init__(
        self,
        config: TrainConfig,
        towers: TwoTowers,
        batches: PairBatches,
        targets: Sequence[Targets] = (),
        init: Path | None = None,
    ) -> None:
        super().__init__()
        self.config, self._batches, self._targets = config, batches, targets
        known = [
            aims for target in targets for aims in (target.queries, target.documents) if aims is not None
        ]
        torch.manual_seed(config.seed)
        self.towers = towers
        self.objective = Objective(config.objective, towers.config.hidden, known[0].width if known else 0)
        if self.objective.map is not None and init is not None and (init / TEACHER_MAP).is_file():
            known_map = load_file(init / TEACHER_MAP)
            if known_map["weight"].shape == self.objective.map.weight.shape:
                self.objective.map.load_state_dict(known_map)
        learns = config.towers.learns
        for side, tower in (("query", towers.query), ("document", towers.document)):
            tower.requires_grad_(learns in ("both", side))
        towers.words.weight.requires_grad_(config.towers.train_words)

    def forward(self, batch: PairBatch, moment: Moment) -> Loss:
        """The loss of a batch; with gradient caching, its second pass follows later."""
        encoding = self._encoding(moment)
        sides = [self._side(side, batch) for side in self.config.sides]
        later = []
        if encoding.chunk_size:
            cached = [CachedBatch(encoding, tower, sequences) for tower, sequences in sides]
            vectors, later = [side.vectors for side in cached], [side.backward for side in cached]
        else:
            vectors = [encode(encoding, tower, sequences) for tower, sequences in sides]
        value, figures = self._loss(vectors, batch, moment)
        return Loss(value, len(batch.queries), figures, later)

    def _side(self, side: Side, batch: PairBatch) -> tuple[Tower, list[WeightedTokens]]:
        """A tower and its texts of a batch."""
        if side == "query":
            return self.towers.query, self._batches.queries_of(batch)
        documents = self._batches.documents[batch.collection]
        return self.towers.document, [documents[row] for row in batch.documents]

    def _loss(
        self, vectors: Sequence[Tensor], batch: PairBatch, moment: Moment
    ) -> tuple[Tensor, dict[str, float]]:
        targets = self._targets[batch.collection] if self._targets else Targets(None, None)
        wanted = [target.to(moment.device) for target in targets.of(batch)]
        if len(vectors) == 1:
            are_queries = self.config.sides == ("query",)
            if len(wanted) == 2 and not are_queries:
                wanted.reverse()
            return self.objective.alone(vectors[0], *wanted, are_queries=are_queries)
        relevant = torch.from_numpy(batch.relevant).to(moment.device)
        lexical = torch.from_numpy(targets.lexical(batch)).to(moment.device) if targets.lexical else None
        found: tuple[Tensor, dict[str, float]] = self.objective(*vectors, relevant, wanted, lexical)
        return found

    def _encoding(self, moment: Moment) -> Encoding:
        chunk_size = self.config.optimizer.chunk_size
        return Encoding(self._batches.pad_id, moment.device, moment.autocast, chunk_size)
