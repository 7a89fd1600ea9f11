"""Reciprocal rank fusion of named rankings: one ranking from several, by ranks only.

Cormack, Clarke and Büttcher, SIGIR 2009 (https://doi.org/10.1145/1571941.1572114): the score of a document is the
sum of 1 / (k + rank) over the rankings that contain it, with ranks from 1. The service fuses rows and arrays
(`glow.search.hybrid`); this module does the same for any number of rankings of ids.
"""

from collections.abc import Mapping, Sequence
from math import fsum

from glow.index import RRF_K
from glow.records import Hit

__all__ = ["fuse", "rrf"]


def rrf(rankings: Sequence[Sequence[str]], k: int = RRF_K) -> list[Hit]:
    """Fuses rankings.

    Args:
        rankings: document ids, best first; a repeated document counts at its best rank, and the ones behind it
            keep their ranks.
        k: constant that reduces the advantage of the first ranks, >= 0.

    Returns:
        Every document once, best first; ties go to the smaller id, so the order of the rankings never matters.
    """
    shares: dict[str, list[float]] = {}
    for ranking in rankings:
        seen: set[str] = set()
        for rank, document in enumerate(ranking, start=1):
            if document not in seen:
                seen.add(document)
                shares.setdefault(document, []).append(1.0 / (k + rank))
    # fsum rounds once: the last bit of a plain sum, and so ties, would depend on the order of the rankings.
    hits = [Hit(document, fsum(parts)) for document, parts in shares.items()]
    return sorted(hits, key=lambda hit: (-hit.score, hit.document_id))


def fuse(
    runs: Sequence[Mapping[str, Sequence[Hit]]], top_k: int, k: int = RRF_K
) -> Mapping[str, Sequence[Hit]]:
    """Fuses runs query by query.

    Args:
        runs: at least one, query id -> hits, best first; a query that some runs lack is fused from the others.
        top_k: number of hits of each run to fuse, and of hits to keep, >= 1.
        k: as for `rrf`.

    Returns:
        The queries in the order in which the runs first name them.
    """
    queries = dict.fromkeys(query for run in runs for query in run)
    return {
        query: rrf([[hit.document_id for hit in run.get(query, ())[:top_k]] for run in runs], k)[:top_k]
        for query in queries
    }
