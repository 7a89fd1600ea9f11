"""Training of glow-mini's towers: lists scored by a teacher and BM25, own documents, and the vectors of the start.

n   queries of a step        D   documents of a step        H   dimensions
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from glow.nn import TwoTowers
from glow.text import Preprocessor
from glow.training.run import Group, Moment
from research.encoders.descent import TEMPERATURE, descend, distance
from research.encoders.pack import Tensors, flat
from research.encoders.prepare import LEXICAL, bm25_of
from research.steps import Draws

__all__ = ["train_towers"]

BLOCKS, BLOCK, DOCUMENTS = 4, 32, 8
QUERY_RATE, DOCUMENT_RATE, GAIN_FACTOR, WARMUP = 2e-4, 5e-5, 20, 0.05
GROUPS = (
    Group(r"query.*gain$", GAIN_FACTOR, decay=False),
    Group(r"document.*gain$", GAIN_FACTOR * DOCUMENT_RATE / QUERY_RATE, decay=False),
    Group(r"document\.", DOCUMENT_RATE / QUERY_RATE),
)
OWN, PULL, BONUS, MARGIN = 0.5, 3.0, 0.3, 0.02


def train_towers(
    towers: TwoTowers,
    pack: Tensors,
    made: Tensors,
    preprocessor: Preprocessor,
    steps: int,
    weighted: bool,
    lexical: float = LEXICAL,
    seed: int = 1,
) -> None:
    """Trains towers in place, except for their token embedding matrix.

    Args:
        towers: on the pack's device; the document tower is the start's.
        pack, made: training texts, and what `prepare` made of them.
        preprocessor: the one that they were packed with.
        steps, weighted: number of steps, of 128 queries, and whether words have weights.
        lexical: weight of BM25 in the lists' labels; the teacher's cosine has 1.
        seed: seed of the order.
    """
    state = {name.removeprefix("query."): value for name, value in made.items() if name.startswith("query.")}
    towers.query.load_state_dict(state, strict=False)
    towers.words.weight.requires_grad_(False)
    bm25, pad_id = bm25_of(pack, preprocessor), preprocessor.pieces.pad_id
    queries, documents = (flat(pack, name, pad_id, weighted) for name in ("queries", "documents"))
    batches = _batches(pack["copies"], made["clusters"])

    def loss(rows: Tensor, moment: Moment) -> Tensor:
        listed = made["candidates"][rows]
        drawn = torch.rand(listed.shape, device=rows.device).argsort(1)[:, : DOCUMENTS - 1]
        listed = torch.unique(torch.cat([pack["own"][rows], listed.gather(1, drawn).flatten()]))
        asked = queries.batch(rows, towers.query.positions.num_embeddings, 8)
        read = documents.batch(listed, towers.document.positions.num_embeddings)
        with moment.autocast():
            found = towers.query(*asked).float(), towers.document(*read).float()
        scores = made["teacher.queries"][rows].float() @ made["teacher.documents"][listed].float().T
        scores += lexical * bm25.shares(asked[0], asked[1], bm25.documents(listed))
        starts = made["start.queries"][rows].float(), made["start.documents"][listed].float()
        own = torch.searchsorted(listed, pack["own"][rows])
        return _loss(found, starts, scores, own, pack["judged"][rows])

    draws = Draws(seed, steps, lambda _: next(batches))
    descend(towers, draws, loss, QUERY_RATE, WARMUP, GROUPS)


def _loss(
    found: tuple[Tensor, Tensor], starts: tuple[Tensor, Tensor], wanted: Tensor, own: Tensor, judged: Tensor
) -> Tensor:
    """The loss of a step.

    Args:
        found, starts: vectors of queries [n, H] and documents [D, H]: the towers', and those of the start.
        wanted: the teacher's and BM25's scores, [n, D].
        own, judged: column of each query's document, and whether people judged it, [n].
    """
    scores, at = found[0] @ found[1].T, own[:, None]
    lists = distance(scores, wanted.scatter_add(1, at, BONUS * judged[:, None].float()))
    # Documents that score like the own one are probably relevant too.
    hidden = (wanted > wanted.gather(1, at) - MARGIN).scatter(1, at, False)
    pairs = functional.cross_entropy((scores / TEMPERATURE).masked_fill(hidden, -1e4), own)
    moved = [(1.0 - (new * old).sum(1)).mean() for new, old in zip(found, starts, strict=True)]
    return lists + OWN * pairs + PULL * (moved[0] + moved[1])


def _batches(copies: Tensor, clusters: Tensor) -> Iterator[Tensor]:
    """Endless rows of queries, in blocks of one cluster each."""
    pool = torch.repeat_interleave(torch.arange(len(copies), device=copies.device), copies)
    while True:
        order = pool[torch.randperm(len(pool), device=pool.device)]
        blocks = torch.split(order[torch.argsort(clusters[order], stable=True)], BLOCK)
        mixed_up = [blocks[at] for at in torch.randperm(len(blocks)).tolist() if len(blocks[at]) == BLOCK]
        for at in range(0, len(mixed_up) - BLOCKS + 1, BLOCKS):
            yield torch.cat(mixed_up[at : at + BLOCKS])
