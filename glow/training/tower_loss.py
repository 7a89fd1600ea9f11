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
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from glow.index import DEFAULT_FUSION
from glow.index.postings import ImpactIndex, build_lexical
from glow.options import StrictModel
from glow.schema import FieldSchema
from glow.search import HEAD, uncertainty
from glow.text import WordPieces, lexical_words
from glow.training.data import (
    Collection,
    PairBatch,
    count_terms,
)
from glow.training.teacher import Aims

Side = Literal["query", "document"]


class ObjectiveConfig(StrictModel):
    """The loss."""

    # `bce` (Eq. 10 with NCE sampling, docs/papers.md 1.6), `softmax` over the batch, or `none` (distillation alone).
    kind: Literal["bce", "softmax", "none"] = "softmax"
    # initial a and c of the BCE; learned unless `learn_scale` is false
    scale: float = Field(default=1.0, gt=0.0)
    shift: float = 0.0
    learn_scale: bool = True
    nce_weight: float = Field(default=0.5, ge=0.0, le=1.0)  # weight of the sampled negatives in the BCE loss
    # of NCE sampling; 1000 almost picks the hardest negative, 10 is almost uniform
    inverse_temperature: float = Field(default=1000.0, gt=0.0)
    # queries with a higher cosine count as the same question
    query_mask: float = Field(default=0.9, gt=0.0, le=1.0)
    temperature: float = Field(default=0.05, gt=0.0)  # of the softmax
    # mined negatives per pair and step, if `--negatives` is given
    hard_negatives: int = Field(default=0, ge=0)
    # weight of 1 - cosine to a teacher's vectors, for queries and documents each; 0 is off
    distill_weight: float = Field(default=0.0, ge=0.0)
    # weight of the divergence from the teacher's softmax over the batch's documents
    list_weight: float = Field(default=0.0, ge=0.0)
    list_temperature: float = Field(default=0.05, gt=0.0)  # of both softmaxes there
    # the vectors that the trained tower is compared with in that list: the `own` other tower's, or the `teacher`'s, which trains one tower alone
    list_other: Literal["own", "teacher"] = "own"
    # factor of the lexical part that hybrid search adds to a cosine; 1: as in hybrid search. The list then has the towers' own cosines
    # and this part; 0: the teacher's cosines.
    list_lexical: float = Field(default=0.0, ge=0.0)

    @property
    def compares(self) -> bool:
        """Whether any part of the loss compares the towers' vectors of queries and documents."""
        return self.kind != "none" or bool(self.list_weight and self.list_other == "own")

    @property
    def needs_teacher(self) -> bool:
        """Whether any part of the loss needs a teacher."""
        return bool(self.distill_weight or self.list_weight)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.list_lexical and not self.list_weight:
            raise ValueError("list_lexical belongs to the teacher's list: it needs a list_weight above 0")
        alone = self.kind == "none" and not self.list_lexical
        if self.list_other == "teacher" and not (alone and self.list_weight):
            raise ValueError(
                "list_other 'teacher' is for one tower that learns alone: it needs kind 'none' and a list_weight, "
                "without list_lexical"
            )
        if self.kind == "none" and not self.needs_teacher:
            raise ValueError("kind 'none' leaves nothing to minimize; give distill_weight or list_weight")
        return self


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
                pairs = zip((queries, documents), wanted, strict=True)
                first, second = (embedding_loss(each, self.mapped(aim).detach()) for each, aim in pairs)
                loss = loss + self.config.distill_weight * (first + second)
            if self.config.list_weight:
                if lexical is None:
                    scores = wanted[0] @ wanted[1].T
                else:
                    scores = cosines.detach() + self.config.list_lexical * lexical
                loss = loss + self.config.list_weight * list_loss(
                    cosines, scores, self.config.list_temperature
                )
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


BLOCK_QUERIES = 1024


def lexical_part(
    folder: Path, collection: Collection, schema: FieldSchema, pieces: WordPieces, targets: Targets
) -> Callable[[PairBatch], NDArray[np.float32]]:
    """The lexical part of hybrid scores of one collection, float32 [B, M] of a batch, which a list-wise teacher adds to cosines.

    A dense model can learn lexical matching in part (SPAR, https://arxiv.org/abs/2110.06918; LED,
    https://arxiv.org/abs/2208.13661). The part is computed as in a search (`glow.search.hybrid`): BM25 on the scale of
    the collection's largest impact, times the uncertainty of the ranking by the teacher's vectors.
    """
    table = count_terms([collection], schema, pieces)
    documents = (lexical_words(document, schema, pieces) for document in collection.documents)
    build_lexical(folder, documents, table, table)
    index = ImpactIndex.open(folder)
    weights = DEFAULT_FUSION.weights
    scale = weights.lexical / weights.dense / (index.largest or 1.0)
    words = [list(pieces.words(query)) for query in collection.queries]
    factors = (_openness(targets) * scale).astype(np.float32)

    def scores(batch: PairBatch) -> NDArray[np.float32]:
        rows = batch.documents.astype(np.int64)
        found = [index.score(words[query], rows) for query in batch.queries]
        return np.stack(found) * factors[batch.queries, None]

    return scores


def _openness(targets: Targets) -> NDArray[np.float32]:
    """Each query's `uncertainty` over the teacher's ranking of the whole collection, float32 [queries]."""
    if targets.queries is None or targets.documents is None:
        raise ValueError("a lexical teacher needs the teacher's vectors of queries and documents")
    queries, documents = targets.queries[:], targets.documents[:]
    found = np.empty(len(queries), np.float32)
    head = min(HEAD, len(documents))
    for start in range(0, len(queries), BLOCK_QUERIES):
        cosines = queries[start : start + BLOCK_QUERIES] @ documents.T
        best = -np.sort(-np.partition(cosines, -head, axis=1)[:, -head:], axis=1)
        found[start : start + len(best)] = [uncertainty(row) for row in best]
    return found
