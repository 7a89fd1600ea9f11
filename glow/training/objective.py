"""The configured loss over one batch of vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from glow.training.config import ObjectiveConfig
from glow.training.data import PairBatch
from glow.training.losses import (
    BceObjective,
    blocked_negatives,
    embedding_loss,
    list_loss,
    softmax_loss,
)
from glow.training.teacher import Aims

__all__ = ["Objective", "Targets"]


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

    Args:
        config: the parts of the loss.
        hidden, teacher: H, and the teacher's W (0: no teacher). If they differ, a linear map of its vectors is learned.
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
        relevant: Tensor,
        wanted: Sequence[Tensor] = (),
        lexical: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss, a scalar, and figures of the batch.

        Args:
            queries, documents: float32 [B, H] and [M, H], L2-normalized.
            relevant: bool [B, M].
            wanted: the teacher's vectors of both, if the configuration uses a teacher.
            lexical: float32 [B, M], the lexical additions to the cosines of the teacher's list.

        Returns:
            The loss; and batch means of the weighted cosine (a·cos + c, GLOW section 3.8) of the pairs and of
            each query's nearest unblocked document.
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

        Args:
            vectors: float32 [n, H], L2-normalized.
            wanted, others: the teacher's vectors of the same texts [n, W] and of the batch's other side [m, W].
            are_queries: whether it is the query tower.
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
