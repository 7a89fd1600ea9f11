"""Answers as frozen records: what was found, how it was read, and why.

Every record is made from JSON by its `read`, which ignores members that it does not know; those stay in `raw`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glow.client.explanations import Explanation, QueryTerm
from glow.client.node import Node

__all__ = ["AnalyzedQuery", "Facet", "FacetCount", "IndexName", "Passage", "SearchHit", "SearchResult"]


@dataclass(frozen=True, slots=True)
class IndexName:
    """Which index answered: its version, and the model with its hash."""

    version: str
    model: str

    @classmethod
    def read(cls, node: Node) -> "IndexName":
        """Reads it from an answer."""
        return cls(node.text("version"), node.text("model"))


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """How the service read a query.

    Attributes:
        text: the query.
        tokens: word pieces that were read, [CLS] and [SEP] included.
        truncated: words were cut by the model's budget.
        terms: each different word with its weight.
        explanation: where it was asked for.
        corrected: unknown word -> what was searched in its place; empty where nothing was.
        searched: the text with its slips corrected; `text` where there were none.
        unknown: words that no document of the index holds.
    """

    text: str
    tokens: int
    truncated: bool
    terms: tuple[QueryTerm, ...]
    explanation: Explanation | None = None
    corrected: Mapping[str, str] = field(default_factory=dict)
    searched: str = ""
    unknown: tuple[str, ...] = ()

    @classmethod
    def read(cls, node: Node) -> "AnalyzedQuery":
        """Reads it from an answer."""
        terms = tuple(QueryTerm.read(term) for term in node.nodes("terms"))
        explained = Explanation.read_optional(node)
        text, correction = node.text("text", ""), node.optional("corrected")
        words = {} if correction is None else correction.mapping("words")
        searched = text if correction is None else correction.text("text", text)
        tokens, truncated = node.integer("tokens", 0), node.flag("truncated")
        return cls(text, tokens, truncated, terms, explained, words, searched, node.texts("unknown"))


@dataclass(frozen=True, slots=True)
class Passage:
    """The best passage of a document: characters `start` to `end` of the field's text."""

    field: str
    start: int
    end: int
    text: str

    @classmethod
    def read(cls, node: Node) -> "Passage":
        """Reads it from an answer."""
        return cls(node.text("field", ""), node.integer("start"), node.integer("end"), node.text("text", ""))


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One document that was found.

    Attributes:
        rank: 1 is the best.
        id: the document's id.
        score: what ranks; higher is better. A probability if the result has a `confidence`.
        scores: part (`dense`, `lexical`, `learned`, `late`, `fused`, `rerank`) -> its own score, as far as known.
        fields: field name -> its values in order.
        metadata: every other key of the document.
        highlights: field name -> snippets as HTML: escaped text with `<em>` and `<em class="attended">`.
        explanation: where it was asked for.
        passage: the best passage, where the index has passages.
        truncated: fields, `metadata` or `highlights` that were cut or left out because the response would have been too large.
        raw: the JSON object as it came.
        vector: L2-normalized, if `vectors` was asked for.
    """

    rank: int
    id: str
    score: float
    scores: Mapping[str, float]
    fields: Mapping[str, tuple[str, ...]]
    metadata: Mapping[str, Any]
    highlights: Mapping[str, tuple[str, ...]]
    explanation: Explanation | None
    passage: Passage | None
    truncated: tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False)
    vector: tuple[float, ...] = ()

    def text(self, name: str) -> str:
        """The first value of a field; "" where the document has none."""
        return next(iter(self.fields.get(name, ())), "")

    @classmethod
    def read(cls, node: Node) -> "SearchHit":
        """Reads it from an answer."""
        passage = node.optional("passage")
        return cls(
            rank=node.integer("rank", 0),
            id=node.text("id"),
            score=node.number("score"),
            scores=node.numbers("scores"),
            fields=node.lists("fields"),
            metadata=node.mapping("metadata"),
            highlights=node.lists("highlights"),
            explanation=Explanation.read_optional(node),
            passage=None if passage is None else Passage.read(passage),
            truncated=tuple(str(name) for name in node.items("truncated")),
            raw=node.value,
            vector=tuple(float(each) for each in node.items("vector")),
        )


@dataclass(frozen=True, slots=True)
class FacetCount:
    """How many of the counted documents have this value."""

    value: Any
    count: int


@dataclass(frozen=True, slots=True)
class Facet:
    """Values of a metadata field among the documents that match.

    Attributes:
        values: the most frequent ones, most frequent first.
        counted: documents that were counted.
        approximate: not every match was counted.
    """

    values: tuple[FacetCount, ...]
    counted: int
    approximate: bool

    @classmethod
    def read(cls, node: Node) -> "Facet":
        """Reads it from an answer."""
        values = tuple(
            FacetCount(item.value.get("value"), item.integer("count")) for item in node.nodes("values")
        )
        return cls(values, node.integer("counted", 0), node.flag("approximate"))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to a search.

    Attributes:
        request_id: names the search for `feedback`; in the service's log without its signature, if it has one.
        took_ms: milliseconds from the request's first byte to the making of the answer.
        degraded: what was left undone, from a closed set; empty where nothing was.
        index: which index answered.
        query: how the query was read.
        hits: best first.
        confidence: `high`, `low` or `none`: how sure the first hit is; "" if scores are no probabilities.
        facets: metadata field -> counts, where asked for.
        timings_ms: stage -> milliseconds.
        raw: the JSON object as it came.
    """

    request_id: str
    took_ms: float
    degraded: tuple[str, ...]
    index: IndexName
    query: AnalyzedQuery
    hits: tuple[SearchHit, ...]
    confidence: str
    facets: Mapping[str, Facet]
    timings_ms: Mapping[str, float]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, node: Node, head: Node | None = None) -> "SearchResult":
        """Reads it from an answer.

        Args:
            node: the result.
            head: what has `request_id` and `took_ms`: the whole batch, for one of its results.
        """
        head = head or node
        facets = node.optional("facets")
        names = () if facets is None else facets.value
        return cls(
            request_id=head.text("request_id", ""),
            took_ms=head.number("took_ms", 0.0),
            degraded=node.texts("degraded"),
            index=IndexName.read(node.node("index")),
            query=AnalyzedQuery.read(node.node("query")),
            hits=tuple(SearchHit.read(hit) for hit in node.nodes("hits", required=True)),
            confidence=node.text("confidence", ""),
            facets={} if facets is None else {name: Facet.read(facets.node(name)) for name in names},
            timings_ms=node.numbers("timings_ms"),
            raw=node.value,
        )
