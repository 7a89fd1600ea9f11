"""Search results as frozen records: hits, the analyzed query, facets.

Each record's `read` makes it from JSON and ignores unknown members, which stay in `raw`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glow.client.explanations import Explanation, QueryTerm
from glow.client.node import Node

__all__ = ["AnalyzedQuery", "Facet", "FacetCount", "IndexName", "Passage", "SearchHit", "SearchResult"]


@dataclass(frozen=True, slots=True)
class IndexName:
    """The searched index: its version, and the model with its hash."""

    version: str
    model: str

    @classmethod
    def read(cls, node: Node) -> "IndexName":
        """Reads it from a response."""
        return cls(node.text("version"), node.text("model"))


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """A query as the service analyzed it.

    Attributes:
        text: the query.
        tokens: number of encoded subword tokens, including [CLS] and [SEP].
        truncated: whether the query was cut at the model's token limit.
        terms: each distinct term with its weight.
        explanation: the explanation, if requested.
        corrected: unknown word -> its correction; empty if nothing was corrected.
        searched: the query with its typos corrected; `text` if there were none.
        unknown: words that no document of the index contains.
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
        """Reads it from a response."""
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
        """Reads it from a response."""
        return cls(node.text("field", ""), node.integer("start"), node.integer("end"), node.text("text", ""))


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One document that was found.

    Attributes:
        rank: 1 is the best.
        id: the document's id.
        score: the ranking score; higher is better. A probability if the result has a `confidence`.
        scores: stage (`dense`, `lexical`, `learned`, `late`, `fused`, `rerank`) -> its score, if known.
        fields: field name -> its values in order.
        metadata: every other key of the document.
        highlights: field name -> snippets as HTML: escaped text with `<em>` and `<em class="attended">`.
        explanation: the explanation, if requested.
        passage: the best passage, if the index has passages.
        truncated: fields, `metadata` or `highlights` that were cut or omitted to limit the size of the response.
        raw: the JSON object as received.
        vector: the stored vector, L2-normalized, if `vectors` was requested.
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
        """The first value of a field; "" if the document has none."""
        return next(iter(self.fields.get(name, ())), "")

    @classmethod
    def read(cls, node: Node) -> "SearchHit":
        """Reads it from a response."""
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
    """A value, and the number of counted documents that have it."""

    value: Any
    count: int


@dataclass(frozen=True, slots=True)
class Facet:
    """Values of a metadata field in the matching documents.

    Attributes:
        values: the most frequent values, most frequent first.
        counted: number of documents that were counted.
        approximate: whether some matches were not counted.
    """

    values: tuple[FacetCount, ...]
    counted: int
    approximate: bool

    @classmethod
    def read(cls, node: Node) -> "Facet":
        """Reads it from a response."""
        values = tuple(
            FacetCount(item.value.get("value"), item.integer("count")) for item in node.nodes("values")
        )
        return cls(values, node.integer("counted", 0), node.flag("approximate"))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The response to a search.

    Attributes:
        request_id: identifies the search, for `feedback`; the service's log has it without its signature.
        took_ms: milliseconds from the request's first byte until the response was made.
        degraded: steps that were skipped, as names from a closed set; empty if none was.
        index: the searched index.
        query: the analyzed query.
        hits: hits, best first.
        confidence: confidence of the first hit: `high`, `low` or `none`; "" if scores are not probabilities.
        facets: metadata field -> its counts, if requested.
        timings_ms: stage -> milliseconds.
        raw: the JSON object as received.
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
        """Reads it from a response.

        Args:
            node: the result.
            head: object with `request_id` and `took_ms`: the batch, for a result of a batch.
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
