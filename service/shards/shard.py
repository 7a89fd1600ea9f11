"""A shard's side: what it answers to a router, from one open version. The functions block and are safe to run in many threads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from glow.errors import MismatchError
from glow.search import (
    Index,
    Ranked,
    RowMask,
    SearchParams,
    ShardCandidates,
    expression_from_json,
    gather_candidates,
    not_found,
    pick,
)
from glow.text import Highlighting
from glow_service.search import (
    HighlightCall,
    Place,
    SearchCall,
    Snippets,
    browse,
    documents_of,
    shown_part,
    vector_of,
)
from glow_service.shards.wire import DocumentCall, Found, RankCall, ShowCall, document_to_json, found_to_json

__all__ = ["answer_document", "answer_rank", "answer_show"]


def nothing() -> None:
    """Lets work go on."""


def answer_rank(index: Index, call: RankCall, check: Callable[[], None] = nothing) -> bytes:
    """The candidates of a query.

    Args:
        index: the version that the call names.
        call: the query.
        check: called before each term of the filter; what it raises ends the work.

    Raises:
        FormatError: if the filter is none.
        MismatchError: if the version lacks what is asked of it.
    """
    if call.retriever != "dense" and index.impacts is None:
        raise MismatchError(f"version {index.version} holds no words; build the set again")
    allowed: RowMask | None = None
    if call.filter is not None and index.masks is not None:
        allowed = index.masks.mask(expression_from_json(call.filter), check)
    check()
    candidates = _every(index, call, allowed) if call.source == "all" else _gather(index, call, allowed)
    rows, names = candidates.rows.tolist(), frozenset(call.fields)
    found = Found.model_construct(
        ids=index.documents.ids(rows),
        candidates=candidates,
        # Whole documents are read only for who sorts or counts by them: reading ids takes a tenth of the time.
        metadata=[pick(each.metadata, names) for each in index.documents.rows(rows)] if names else [],
        matching=index.documents.count if allowed is None else allowed.count,
    )
    return found_to_json(found)


def _gather(index: Index, call: RankCall, allowed: RowMask | None) -> ShardCandidates:
    vector = None if call.vector is None else np.array(call.vector, np.float32)
    if vector is not None and len(vector) != index.dense.dimensions:
        raise MismatchError(
            f"version {index.version} has {index.dense.dimensions} dimensions, found a query of {len(vector)}"
        )
    params = SearchParams(call.ef_search, call.nprobe, call.exact)
    return gather_candidates(index, call.text, vector, call.candidates, call.retriever, params, allowed)


def _every(index: Index, call: RankCall, allowed: RowMask | None) -> ShardCandidates:
    """The first documents that the filter allows, by id; what ranks them is nothing."""
    every: Ranked = browse(index, allowed)
    rows = np.sort(every.rows[: call.candidates])
    zeros, none = np.zeros(len(rows), np.float32), np.full(len(rows), -1, np.int64)
    places = np.arange(len(rows), dtype=np.int64)
    return ShardCandidates(rows, zeros, zeros, none, places, places[:0])


def answer_show(index: Index, call: ShowCall, check: Callable[[], None] = nothing) -> bytes:
    """Hits as they are shown: parts of their documents, passages, snippets.

    Args:
        index: the version that the call names.
        call: which hits.
        check: called after each hit with snippets.
    """
    asked = SearchCall(
        call.text,
        top_k=len(call.rows),
        offset=0,
        candidates=max(len(call.rows), 1),
        params=SearchParams(),
        fields=None if call.fields is None else tuple(call.fields),
        metadata=None if call.metadata is None else tuple(call.metadata),
    )
    highlight = None
    if call.highlight is not None:
        wanted = call.highlight
        options = Highlighting(wanted.fragments, wanted.fragment_chars)
        asked_for = HighlightCall(tuple(wanted.fields), options)
        highlight = Snippets(index, call.text, asked_for, wanted.hits or len(call.rows))
    page = [
        Place(row, 0.0, {}, passage if passage >= 0 else None)
        for row, passage in zip(call.rows, call.passages, strict=True)
    ]
    hits: list[dict[str, Any]] = []
    for _, document, passage in documents_of(index, page):
        snippets = None
        if highlight is not None:
            snippets = highlight.of(document, ())
            check()
        cut = None
        if passage is not None:
            cut = {"field": passage.field, "start": passage.start, "end": passage.end, "text": passage.text}
        shown = document_to_json(shown_part(document, asked))
        hits.append({**shown, "passage": cut, "highlights": snippets})
    return orjson.dumps({"hits": hits})


def answer_document(index: Index, call: DocumentCall, check: Callable[[], None] = nothing) -> bytes:
    """A document by its id.

    Args:
        index: the version that the call names.
        call: which document.
        check: called before the work.

    Raises:
        DocumentNotFoundError: if there is none.
        MismatchError: if its vector is wanted, and cannot be read.
    """
    check()
    document = index.documents.get(call.id)
    vector = None
    if call.vector:
        if not index.dense.has_vectors:
            raise MismatchError(f"version {index.version} holds no vectors that can be read by document")
        row = index.documents.find(call.id)
        if row is None:
            raise not_found(call.id)
        vector = vector_of(index, row)
    body = {**document_to_json(document), "vector": vector}
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
