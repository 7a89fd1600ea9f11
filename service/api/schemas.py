"""The shapes of other requests and of answers; those of a search are in `search_shapes.py`.

Requests are checked against theirs. Answers are plain dicts, because checking each one would cost more time than the
search; the shapes below describe them in OpenAPI, and tests hold real answers against them.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from glow_service.search import Shape

__all__ = ["DocumentBody", "ProblemBody", "SearchResult"]

MOST_TEXTS = 1_024
"""Of `max_batch_queries`, the most that can be set."""


class BatchBody(Shape):
    """`POST /search/batch`: each search as it would be sent alone."""

    searches: list[dict[str, Any]] = Field(
        max_length=MOST_TEXTS, description="1 to `max_batch_queries` bodies of `POST /search`."
    )


class EmbeddingsBody(Shape):
    """`POST /v1/embeddings`: only `input` is required."""

    input: str | Annotated[list[str], Field(max_length=MOST_TEXTS)] = Field(
        description="A text, or 1 to `max_batch_queries` of them."
    )
    model: str | None = Field(
        None, description="The index's model, with or without its hash and the tower: `glow-mini:document`."
    )
    input_type: Literal["query", "document"] | None = Field(
        None,
        description="Which tower, where `model` does not say it; `document` needs a service that holds that tower.",
    )
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or their bytes (float32, little-endian) in base64."
    )
    dimensions: int | None = Field(None, description="The model's own; may be left out.")
    user: str | None = Field(None, description="Ignored.")


class IndexShape(Shape):
    """Which index answered."""

    version: str
    model: str


class TermShape(Shape):
    """A word of the query and the weight that the query tower read for it."""

    word: str
    idf: float
    weight: float
    known: bool


class CorrectedShape(Shape):
    """What was searched in place of words that the index does not know."""

    text: str
    words: dict[str, str]


class WordShape(Shape):
    """A word of a query or document as its tower read it."""

    field: str
    word: str
    tf: float
    idf: float
    weight: float
    attention: float


class QueryExplanation(Shape):
    """What the query tower read."""

    terms: list[WordShape]


class ImpactShape(Shape):
    """What a word adds to a lexical score."""

    word: str
    impact: float


class DeltaShape(Shape):
    """How a dense score changes when a word is left out of the query."""

    word: str
    delta: float


class AnsweredShape(Shape):
    """A word of the query, and the word of a document that answers it best."""

    word: str
    answer: str
    similarity: float
    weight: float


class AttendedShape(Shape):
    """A word of the query (field "query") or document, and where the re-ranker's last joined layer looked."""

    field: str
    word: str
    attention: float


class ExpansionShape(Shape):
    """What a word of the query added to a hit: by BM25, by learned impact, and because of which word of the document."""

    word: str
    bm25: float
    learned: float
    because: str | None = None


class HitExplanation(Shape):
    """Why a document was found."""

    terms: list[WordShape]
    lexical: list[ImpactShape] | None = None
    leave_one_out: list[DeltaShape] | None = None
    fused: dict[Literal["dense", "late", "words"], float] | None = None
    late: list[AnsweredShape] | None = None
    rerank: list[AttendedShape] | None = None
    learned: list[ExpansionShape] | None = None


class QueryShape(Shape):
    """How the query was read."""

    text: str
    tokens: int
    truncated: bool
    terms: list[TermShape]
    corrected: CorrectedShape | None = None
    unknown: list[str] | None = None
    explanation: QueryExplanation | None = None


class PassageShape(Shape):
    """The passage of a document that matched best."""

    field: str
    start: int
    end: int
    text: str


class HitShape(Shape):
    """One document that was found."""

    rank: int
    id: str
    score: float
    scores: dict[Literal["dense", "lexical", "learned", "late", "fused", "rerank"], float]
    fields: dict[str, str | list[str]]
    metadata: dict[str, Any]
    truncated: list[str] | None = None
    passage: PassageShape | None = None
    highlights: dict[str, list[str]] | None = None
    explanation: HitExplanation | None = None


class FacetValue(Shape):
    """A value and how many documents have it."""

    value: str | float | int | bool
    count: int


class FacetShape(Shape):
    """Counts of a metadata field's values."""

    values: list[FacetValue]
    counted: int
    approximate: bool


class TimingsShape(Shape):
    """Milliseconds of each stage that the request went through."""

    queue: float | None = None
    preprocess: float | None = None
    encode: float | None = None
    filter: float | None = None
    search: float | None = None
    late: float | None = None
    rerank: float | None = None
    facets: float | None = None
    fetch: float | None = None
    highlight: float | None = None
    explain: float | None = None
    cache: float | None = None


class SearchResult(Shape):
    """The answer of `POST /search`."""

    request_id: str
    took_ms: float
    degraded: list[str]
    index: IndexShape
    query: QueryShape
    hits: list[HitShape]
    confidence: Literal["high", "low", "none"] | None = None
    facets: dict[str, FacetShape] | None = None
    timings_ms: TimingsShape


class BatchItem(Shape):
    """The answer to one search of a batch: what was found, or a problem."""

    status: int
    degraded: list[str] | None = None
    index: IndexShape | None = None
    query: QueryShape | None = None
    hits: list[HitShape] | None = None
    confidence: Literal["high", "low", "none"] | None = None
    facets: dict[str, FacetShape] | None = None
    timings_ms: TimingsShape | None = None
    problem: "ProblemBody | None" = None


class BatchResult(Shape):
    """The answer of `POST /search/batch`."""

    request_id: str
    took_ms: float
    index: IndexShape
    results: list[BatchItem]


class EmbeddingShape(Shape):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class UsageShape(Shape):
    """How much was read."""

    prompt_tokens: int
    total_tokens: int
    truncated: list[int]


class EmbeddingsResult(Shape):
    """The answer of `POST /v1/embeddings`."""

    object: Literal["list"]
    data: list[EmbeddingShape]
    model: str
    usage: UsageShape


class ModelShape(Shape):
    """A tower under the name by which it can be asked for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str


class ModelsResult(Shape):
    """The answer of `GET /v1/models`."""

    object: Literal["list"]
    data: list[ModelShape]


class DocumentBody(Shape):
    """The answer of `GET /documents/{id}`."""

    id: str
    fields: dict[str, str | list[str]]
    metadata: dict[str, Any]
    index: IndexShape


class FeedbackBody(Shape):
    """`POST /feedback`: which hit of which search, and what somebody did with it."""

    request_id: str = Field(min_length=1, max_length=160, description="Of the search's answer, whole.")
    id: str = Field(min_length=1, max_length=512, description="Of the document.")
    kind: Literal["click", "like", "dislike"]
    rank: int | None = Field(None, ge=1, le=100_000, description="Of the hit, as it was shown.")
    dwell_s: float | None = Field(
        None,
        ge=0,
        le=86_400,
        description="Seconds that somebody stayed with the document; send the click again with it.",
    )
    user: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Tells the users of one API key apart; only a keyed hash of it is kept. Without a key it is not read.",
    )


class FeedbackResult(Shape):
    """The answer of `POST /feedback`."""

    status: Literal["noted"]


class FaultShape(Shape):
    """One thing wrong with a request's body."""

    pointer: str
    detail: str


class DocumentsBody(Shape):
    """`POST /documents`: documents as lines of a collection; one alone may be the whole body, or JSON lines be sent."""

    documents: list[dict[str, Any]] = Field(
        description="1 to `max_write_documents`, each with `_id` and text."
    )


class DeleteBody(Shape):
    """`POST /documents/delete`: `ids`, or `filter`, or `all`; `all` may be beside `filter`."""

    ids: list[str] | None = Field(
        None, description="1 to `max_write_documents`; one that is not there is no error."
    )
    filter: dict[str, Any] | None = Field(
        None,
        description="As a search has it; found when it is applied. One that restricts nothing is refused.",
    )
    all: bool = Field(False, description="Every document may be deleted.")


class RejectShape(Shape):
    """A document that was not taken."""

    place: int = Field(description="In the request, from 0.")
    id: str | None
    reason: str


class OperationResult(Shape):
    """A write, and how far it has come."""

    operation: str = Field(description="For `GET /operations/{id}`.")
    state: Literal["waiting", "applied", "visible", "failed"]
    version: str | None = Field(None, description="That holds it.")
    previous: str | None = Field(
        None, description="The version before a deletion by filter, for `glow rollback`."
    )
    counts: dict[str, int] | None = Field(None, description="Of the batch that it was applied in.")
    reason: str | None = Field(None, description="Why it failed.")
    accepted: int | None = Field(None, description="Documents that were taken.")
    rejected: int | None = Field(None, description="Documents that were not.")
    rejects: list[RejectShape] | None = Field(None, description="The first hundred of them.")


class ProblemBody(Shape):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    errors: list[FaultShape]
