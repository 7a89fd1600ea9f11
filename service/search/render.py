"""Makes the records of a response from what a search found."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from glow.contract import (
    AttendedWord,
    Facet,
    FacetValue,
    Hit,
    HitExplanation,
    IndexName,
    Passage,
    QueryTerm,
    ReadWord,
    WordDelta,
)
from glow.index import Explained, Index
from glow.index.columns import pick
from glow.index.columns.masks import FacetCounts
from glow.index.passages import PASSAGES, FoundPassage
from glow.index.vectors import VECTORS
from glow.records import Document
from glow.runtime import Explanation
from glow.schema import FieldSchema
from glow.search import NO_OTHERS, Others, contributions, is_known
from glow.text import WeightedTokens, searched_words
from glow_service.search.explanations import Explanations
from glow_service.search.plan import SearchPlan

SCORE_DIGITS = 6
WEIGHT_DIGITS = 4


class RankedHit(NamedTuple):
    """A hit before its document is read."""

    row: int  # row of the document in the index
    score: float  # the ranking score; the probability of relevance if the response has a confidence
    # `dense` (cosine, in [-1, 1]), `lexical`, `learned` (>= 0), `fused`, `rerank` (any sign)
    parts: dict[str, float]
    passage: int | None  # row of the best passage, if the index has passages and dense retrieval found it


class HitMaker:
    """Makes the hits of one response, each with only the requested parts of its document."""

    def __init__(
        self,
        index: Index,
        plan: SearchPlan,
        text: str,
        explanations: Explanations | None = None,
        others: Others = NO_OTHERS,
    ) -> None:
        schema = index.preprocessor.schema
        self._index, self._plan, self._text, self._explanations = index, plan, text, explanations
        self._others = others
        self._fields = schema.names if plan.fields is None else plan.fields
        self._metadata = None if plan.metadata is None else frozenset(plan.metadata)
        self._lists = list_fields(schema)

    def hit(
        self,
        place: int,  # its position on the page, from 0
        ranked: RankedHit,
        document: Document,
        passage: FoundPassage | None,
        highlights: dict[str, tuple[str, ...]] | None = None,  # HTML; None if not requested
        because: Mapping[str, str] | None = None,  # query word that it lacks -> its own related word
        *,
        has_vector: bool = True,
    ) -> Hit:
        """One hit."""
        metadata = document.metadata if self._metadata is None else pick(document.metadata, self._metadata)
        vector, plan, explanations = None, self._plan, self._explanations
        if plan.vectors and has_vector:
            numbers = vector_of(self._index, ranked.row).tolist()
            vector = tuple(round(each, SCORE_DIGITS) for each in numbers)
        explanation = None
        if explanations is not None:
            explained = Explained(ranked.row, because or {}, self._others)
            parts = ranked.parts
            explanation = _explanation(self._index, plan, self._text, parts, explained, explanations, place)
        return Hit(
            rank=plan.offset + place + 1,
            id=document.id,
            score=round(ranked.score, SCORE_DIGITS),
            scores={name: round(score, SCORE_DIGITS) for name, score in ranked.parts.items()},
            fields=shown_fields(document, self._fields, self._lists),
            metadata=metadata,
            passage=None
            if passage is None
            else Passage(passage.field, passage.start, passage.end, passage.text),
            vector=vector,
            highlights=highlights,
            explanation=explanation,
        )


def _explanation(
    index: Index,
    plan: SearchPlan,
    text: str,
    parts: Mapping[str, float],
    explained: Explained,
    explanations: Explanations,
    place: int,
) -> HitExplanation:
    words = searched_words(index.preprocessor.pieces.words(text))
    body: dict[str, Any] = {"terms": read_words(explanations.documents[place])}
    body |= index.explain(plan.retriever, words, explained)
    if plan.leave_one_out:
        deltas = ((each.word, each.deltas[place]) for each in explanations.left_out)
        body["leave_one_out"] = [WordDelta(word, round(delta, SCORE_DIGITS)) for word, delta in deltas]
    if {"fused", "dense"} <= parts.keys():
        added = contributions(plan.fusion or index.fusion, parts, parts["fused"])
        body["fused"] = {name: short(value) for name, value in added.items()}
    if place in explanations.reranked:
        words_read = explanations.reranked[place]
        body["rerank"] = [AttendedWord(each.field, each.word, short(each.attention)) for each in words_read]
    # Not converted, because a component of an index may have members that the record does not know.
    return cast(HitExplanation, body)


def read_words(explanation: Explanation) -> tuple[ReadWord, ...]:
    """The words of a text, as its encoder read them."""
    return tuple(
        ReadWord(term.field, term.word, term.tf, short(term.idf), short(term.weight), short(term.attention))
        for term in explanation.terms
    )


def vector_of(index: Index, row: int) -> NDArray[np.float32]:
    """A document's vector, L2-normalized; with passages, their mean."""
    rows = np.array([row], np.int64)
    if index.holds(PASSAGES):
        rows = np.flatnonzero(index[PASSAGES].documents == row).astype(np.int64)
    mean = index[VECTORS].vectors(rows).mean(axis=0)
    vector: NDArray[np.float32] = (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)
    return vector


def facet_of(counts: FacetCounts) -> Facet:
    """The counts of a metadata field."""
    values = tuple(FacetValue(each.value, each.count) for each in counts.values)
    return Facet(values, counts.counted, counts.approximate)


def short(value: float) -> float:
    """A weight as responses show it."""
    return round(value, WEIGHT_DIGITS)


def index_name(index: Index) -> IndexName:
    """Version and model of an index."""
    return IndexName(index.version, index.model)


def list_fields(schema: FieldSchema) -> frozenset[str]:
    """Names of the fields that are always returned as lists: those that may have several values."""
    return frozenset(spec.name for spec in schema.fields if spec.max_values not in (None, 1))


def shown_fields(
    document: Document, names: Iterable[str], lists: frozenset[str]
) -> dict[str, str | tuple[str, ...]]:
    """The returned fields of a document; empty ones are left out."""
    shown: dict[str, str | tuple[str, ...]] = {}
    for name in names:
        values = document.fields.get(name)
        if values:
            shown[name] = values if name in lists or len(values) > 1 else values[0]
    return shown


def query_terms(index: Index, tokens: WeightedTokens) -> tuple[QueryTerm, ...]:
    """The distinct words of the query; all tokens of a word have the same weight."""
    weights = {
        tokens.words[word]: weight
        for word, weight in zip(tokens.word_ids.tolist(), tokens.weights.tolist(), strict=True)
        if word >= 0
    }
    idf = index.preprocessor.weigher.idf
    return tuple(
        QueryTerm(word, short(idf(word)), short(weight), is_known(index, word))
        for word, weight in weights.items()
    )
