"""Searches without a text: by a vector, for documents like another one, or for all that match a filter."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glow.errors import Fault
from glow.index import Index, RowMask
from glow.index.passages import PASSAGES
from glow.index.stored_fields import STORED_FIELDS, not_found
from glow.index.vectors import VECTORS
from glow.search import RankedDocuments, rank_dense
from glow_service.errors import NotAvailableError, RequestError
from glow_service.search.calls import SearchCall, Source
from glow_service.search.shapes import SearchBody


def check_source(body: SearchBody, index: Index) -> Source:
    """The source of a request."""
    for name in ("like", "vectors"):
        if getattr(body, name) and (detail := index.refusals["like"]):
            raise NotAvailableError(f"/{name}: {detail}", [Fault(f"/{name}", detail)])
    has_text = bool(body.query and body.query.strip())
    given = [name for name in ("vector", "like") if getattr(body, name) is not None]
    if not given:
        if has_text or body.filter is None or (body.query is not None and body.query.strip()):
            return _require_text(body)
        source: Source = "browse"
    else:
        if has_text or len(given) > 1:
            both = " and ".join(["'query'"] * has_text + [f"'{name}'" for name in given])
            raise _fault(f"/{given[-1]}", f"found {both}; send one of 'query', 'vector' and 'like'")
        source = "vector" if given == ["vector"] else "like"
    _refuse_text_members(body, source)
    return source


def _require_text(body: SearchBody) -> Source:
    if body.query is None:
        raise _fault("/query", "required, but missing")
    return "text"


def _refuse_text_members(body: SearchBody, source: Source) -> None:
    allowed = (None, "dense") if source != "browse" else (None,)
    if body.retriever not in allowed:
        raise _fault("/retriever", f"{body.retriever!r} needs a 'query'; remove it")
    for name in ("explain", "fusion"):
        if getattr(body, name):
            raise _fault(f"/{name}", "needs a 'query'; remove it")


def unit_vector(values: Sequence[float] | None, index: Index) -> tuple[float, ...]:
    """The vector of a request, L2-normalized."""
    numbers = np.array(values or (), np.float64)
    if len(numbers) != index[VECTORS].dimensions:
        raise _fault(
            "/vector", f"this index has {index[VECTORS].dimensions} dimensions, found {len(numbers)}"
        )
    length = float(np.linalg.norm(numbers))
    if not math.isfinite(length) or length < 1e-12:
        raise _fault("/vector", "expected finite numbers that are not all 0")
    return tuple((numbers / length).tolist())


def _fault(pointer: str, detail: str) -> RequestError:
    return RequestError(f"{pointer}: {detail}", [Fault(pointer, detail)])


def rank_without_text(index: Index, call: SearchCall, allowed: RowMask | None) -> RankedDocuments:
    """Ranks the candidates of a search without a text."""
    if call.source == "browse":
        return _every(index, allowed)
    if call.source == "vector":
        return rank_dense(index, np.array(call.vector, np.float32), call.candidates, call.params, allowed)
    row = index[STORED_FIELDS].find(call.like)
    if row is None:
        raise not_found(call.like)
    ranked = rank_dense(index, vector_of(index, row), call.candidates + 1, call.params, allowed)
    others = ranked.rows != row
    parts = {name: values[others] for name, values in ranked.parts.items()}
    return RankedDocuments(ranked.scores[others], ranked.rows[others], parts, ranked.passages)


def vector_of(index: Index, row: int) -> NDArray[np.float32]:
    """A document's vector, L2-normalized; with passages, their mean."""
    rows = np.array([row], np.int64)
    if index.holds(PASSAGES):
        rows = np.flatnonzero(index[PASSAGES].documents == row).astype(np.int64)
    mean = index[VECTORS].vectors(rows).mean(axis=0)
    vector: NDArray[np.float32] = (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)
    return vector


def _every(index: Index, allowed: RowMask | None) -> RankedDocuments:
    """All rows that the filter allows, ordered by id, with score 0."""
    assert allowed is not None  # noqa: S101 - browsing needs a filter
    rows = allowed.rows
    if index.order is not None:
        rows = rows[np.argsort(index.order[rows], kind="stable")]
    return RankedDocuments(np.zeros(len(rows), np.float32), rows, {}, {})
