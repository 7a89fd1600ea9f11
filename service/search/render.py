"""Converts a search result to the JSON members of a response."""

from collections.abc import Iterable
from typing import Any

from glow.index import Explained, Index
from glow.index.columns.filters import FacetCounts
from glow.index.passages import FoundPassage
from glow.records import Document
from glow.runtime import Explanation
from glow.schema import FieldSchema
from glow.search import contributions
from glow_service.search.calls import FoundDocument, SearchAnswer, SearchCall
from glow_service.search.explanations import Explanations
from glow_service.search.sources import vector_of

__all__ = ["index_body", "list_fields", "result_body", "shown_fields"]

SCORE_DIGITS = 6
WEIGHT_DIGITS = 4


def result_body(index: Index, call: SearchCall, answer: SearchAnswer) -> dict[str, Any]:
    """The members that depend only on index and request: `index`, `query`, `hits`, `confidence`, `facets`.

    Args:
        index: the searched index.
        call: the search.
        answer: its result.
    """
    body: dict[str, Any] = {
        "index": index_body(index),
        "query": _query(call, answer),
        "hits": _hits(index, call, answer),
    }
    if answer.confidence is not None:
        body["confidence"] = answer.confidence
    if answer.facets:
        body["facets"] = {name: _facet(counts) for name, counts in answer.facets.items()}
    return body


def _query(call: SearchCall, answer: SearchAnswer) -> dict[str, Any]:
    body: dict[str, Any] = {
        "text": call.text,
        "tokens": answer.tokens,
        "truncated": answer.truncated,
        "terms": [
            {"word": term.word, "idf": _short(term.idf), "weight": _short(term.weight), "known": term.known}
            for term in answer.terms
        ],
    }
    if answer.corrected:
        body["corrected"] = {"text": answer.text, "words": answer.corrected}
    if answer.unknown:
        body["unknown"] = answer.unknown
    if answer.explanations is not None:
        body["explanation"] = {"terms": _words(answer.explanations.query)}
    return body


def _hits(index: Index, call: SearchCall, answer: SearchAnswer) -> list[dict[str, Any]]:
    schema = index.preprocessor.schema
    lists, fields = list_fields(schema), schema.names if call.fields is None else call.fields
    shown = []
    for place, hit in enumerate(answer.hits):
        body = {
            "rank": call.offset + place + 1,
            "id": hit.document.id,
            "score": round(hit.score, SCORE_DIGITS),
            "scores": {name: round(score, SCORE_DIGITS) for name, score in hit.parts.items()},
            "fields": shown_fields(hit.document, fields, lists),
            "metadata": hit.document.metadata,
        }
        if hit.passage is not None:
            body["passage"] = _passage(hit.passage)
        if call.vectors:
            body["vector"] = [round(each, SCORE_DIGITS) for each in vector_of(index, hit.row).tolist()]
        if hit.truncated:
            body["truncated"] = hit.truncated
        if hit.highlights is not None:
            body["highlights"] = hit.highlights
        if answer.explanations is not None:
            body["explanation"] = _explanation(index, call, answer.text, hit, answer.explanations, place)
        shown.append(body)
    return shown


def _passage(passage: FoundPassage) -> dict[str, Any]:
    return {"field": passage.field, "start": passage.start, "end": passage.end, "text": passage.text}


def _explanation(
    index: Index, call: SearchCall, text: str, hit: FoundDocument, explanations: Explanations, place: int
) -> dict[str, Any]:
    body: dict[str, Any] = {"terms": _words(explanations.documents[place])}
    words = index.preprocessor.pieces.words(text)
    body |= index.explain(call.retriever, words, Explained(hit.row, hit.because))
    if call.explain is not None and call.explain.leave_one_out:
        left_out = explanations.left_out
        body["leave_one_out"] = [
            {"word": left.word, "delta": round(left.deltas[place], SCORE_DIGITS)} for left in left_out
        ]
    if "fused" in hit.parts and "dense" in hit.parts:
        added = contributions(call.fusion or index.fusion, hit.parts, hit.parts["fused"])
        body["fused"] = {name: _short(value) for name, value in added.items()}
    if explanations.answered:
        body["late"] = [
            {
                "word": each.word,
                "answer": each.answer,
                "similarity": _short(each.similarity),
                "weight": _short(each.weight),
            }
            for each in explanations.answered[place]
        ]
    if place in explanations.reranked:
        body["rerank"] = [
            {"field": word.field, "word": word.word, "attention": _short(word.attention)}
            for word in explanations.reranked[place]
        ]
    return body


def _words(explanation: Explanation) -> list[dict[str, Any]]:
    return [
        {
            "field": term.field,
            "word": term.word,
            "tf": term.tf,
            "idf": _short(term.idf),
            "weight": _short(term.weight),
            "attention": _short(term.attention),
        }
        for term in explanation.terms
    ]


def _facet(counts: FacetCounts) -> dict[str, Any]:
    return {
        "values": [{"value": value_count.value, "count": value_count.count} for value_count in counts.values],
        "counted": counts.counted,
        "approximate": counts.approximate,
    }


def _short(value: float) -> float:
    return round(value, WEIGHT_DIGITS)


def index_body(index: Index) -> dict[str, str]:
    """Version and model of an index."""
    return {"version": index.version, "model": index.model}


def list_fields(schema: FieldSchema) -> frozenset[str]:
    """Names of the fields that are always returned as lists: those that may have several values."""
    return frozenset(spec.name for spec in schema.fields if spec.max_values not in (None, 1))


def shown_fields(
    document: Document, names: Iterable[str], lists: frozenset[str]
) -> dict[str, str | tuple[str, ...]]:
    """The returned fields of a document; empty ones are left out.

    Args:
        document: the stored document.
        names: names of the fields.
        lists: fields that are always lists; others are strings, or lists if they have several values.
    """
    shown: dict[str, Any] = {}
    for name in names:
        values = document.fields.get(name)
        if values:
            shown[name] = values if name in lists or len(values) > 1 else values[0]
    return shown
