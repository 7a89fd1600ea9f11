"""The finds of all shards as the ranking that one index of all documents would have made.

Every candidate gets a row of its own, in the order of ids. So ties end as in one index, and fusing, arranging and
counting, which know rows alone, are those of one index.

m   candidates of all shards
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glow.search.hybrid import HEAD, Fusion, fuse_rankings
from glow.search.ranking import Ranking, best
from glow.search.retrievers import Ranked, Retriever
from glow.search.shards.gather import ShardCandidates

__all__ = ["MergedCandidates", "merge_candidates"]


@dataclass(frozen=True, slots=True, eq=False)
class MergedCandidates:
    """Candidates of all shards, ranked.

    Attributes:
        ranked: rows are places in the lists below, in the order of ids.
        ids: [m], sorted.
        shards: int64 [m], the shard of each.
        rows: int64 [m], its row there.
        passages: int64 [m], its best passage there; -1 for none.
    """

    ranked: Ranked
    ids: Sequence[str]
    shards: NDArray[np.int64]
    rows: NDArray[np.int64]
    passages: NDArray[np.int64]


def merge_candidates(
    found: Mapping[int, tuple[Sequence[str], ShardCandidates]],
    k: int,
    retriever: Retriever,
    fusion: Fusion,
    lexical_scale: float | None,
) -> MergedCandidates:
    """Merges what shards found for one query.

    Args:
        found: number of a shard -> ids of its candidates, and those. A document is in one shard.
        k: candidates of each part that one index would have had, and most that are ranked; >= 1.
        retriever: `dense`, `lexical` or `hybrid`, as every shard was asked.
        fusion: how `hybrid` makes one ranking of two.
        lexical_scale: the largest impact in any shard.
    """
    parts = list(found.items())
    every_id = [name for _, (ids, _) in parts for name in ids]
    # Python compares strings by code points, as the order of an index does.
    order = sorted(range(len(every_id)), key=every_id.__getitem__)
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    starts = np.cumsum([0, *(len(each.rows) for _, (_, each) in parts)])
    joined = _Joined([each for _, (_, each) in parts], starts, row_of, np.array(order, np.int64))
    dense, lexical = joined.ranking("dense", k), joined.ranking("lexical", k)
    if retriever == "hybrid":
        dense_scores, lexical_scores = joined.column("dense"), joined.column("lexical")
        knows_dense = not np.isnan(dense_scores).any()
        fused = fuse_rankings(
            fusion,
            dense,
            lexical,
            None,
            (lambda rows: dense_scores[rows]) if knows_dense else None,
            lambda rows: lexical_scores[rows],
            lexical_scale,
            _head([each for _, (_, each) in parts]),
        )
        scores, rows = fused.scores[:k], fused.rows[:k]
        scored = {name: values[:k] for name, values in fused.parts.items()}
    else:
        scores, rows = dense if retriever == "dense" else lexical
        scored = {retriever: scores}
    passages = joined.column("passages")
    shown = {row: int(passages[row]) for row in rows.tolist() if passages[row] >= 0}
    return MergedCandidates(
        Ranked(scores, rows, scored, shown),
        [every_id[place] for place in order],
        np.repeat(np.array([shard for shard, _ in parts], np.int64), np.diff(starts))[joined.order],
        joined.column("rows"),
        passages,
    )


def _head(parts: Sequence[ShardCandidates]) -> NDArray[np.float32] | None:
    """The first dense scores of all shards whatever the filter allows; None where there is no filter."""
    heads = [part.head for part in parts if part.head is not None]
    return np.sort(np.concatenate(heads))[::-1][:HEAD] if heads else None


class _Joined:
    """The arrays of all shards, one after another, and their order by id.

    Args:
        parts: of each shard.
        starts: where each begins, int64 [shards + 1].
        row_of: int64 [m], place among all -> row.
        order: int64 [m], row -> place among all.
    """

    def __init__(
        self,
        parts: Sequence[ShardCandidates],
        starts: NDArray[np.int64],
        row_of: NDArray[np.int64],
        order: NDArray[np.int64],
    ) -> None:
        self._parts = parts
        self._starts = starts
        self._row_of = row_of
        self.order = order

    def column(self, name: str) -> NDArray[Any]:
        """One of the candidates' arrays over all shards, by row."""
        arrays = [getattr(part, name) for part in self._parts]
        return np.concatenate(arrays)[self.order] if arrays else np.empty(0, np.int64)

    def ranking(self, name: str, k: int) -> Ranking:
        """The k best of what one part found in any shard."""
        places = [
            start + getattr(part, f"found_{name}")
            for part, start in zip(self._parts, self._starts.tolist(), strict=False)
        ]
        if not places:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        rows = self._row_of[np.concatenate(places)]
        return best(self.column(name)[rows], rows, k)
