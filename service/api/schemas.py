"""The shapes of requests and answers.

Requests are checked against theirs. Answers are plain dicts, because checking each one would cost more time than the
search; the shapes below describe them in OpenAPI, and tests hold real answers against them.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["DocumentBody", "ParamsBody", "ProblemBody", "SearchBody", "SearchResult"]


# Pydantic looks at every member of a list before it says what is wrong with them.
MOST_FIELDS = 64
MOST_TEXTS = 1_024
"""Of `max_batch_queries`, the most that can be set."""


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ParamsBody(_Shape):
    """How thoroughly to search; what the index's kind does not know has no effect."""

    ef_search: int | None = Field(None, ge=1, le=10_000, description="Candidates that an hnsw index keeps.")
    nprobe: int | None = Field(None, ge=1, le=65_536, description="Lists that an ivf index looks into.")
    exact: bool = Field(False, description="Compare with every vector; not offered by ivf-pq.")


_NO_PARAMS = ParamsBody(ef_search=None, nprobe=None, exact=False)


class SearchBody(_Shape):
    """`POST /search`: only `query` is required."""

    query: str = Field(description="What to search for; not blank, at most `max_query_chars`.")
    top_k: int = Field(10, ge=1, description="Hits to return, at most `max_top_k`.")
    offset: int = Field(0, ge=0, description="Hits to pass over first.")
    candidates: int | None = Field(
        None, ge=1, description="Hits to gather; at least offset + top_k, at most `max_candidates`."
    )
    retriever: Literal["dense"] = Field("dense", description="How to find candidates.")
    fields: list[str] | None = Field(
        None,
        max_length=MOST_FIELDS,
        description=f"Fields to return, at most {MOST_FIELDS}; all where absent.",
    )
    params: ParamsBody = Field(
        default_factory=lambda: _NO_PARAMS
    )  # a plain default is copied for each request
    timeout_ms: int | None = Field(
        None, ge=1, description="Deadline from the request's first byte, at most `max_timeout_ms`."
    )
    allow_partial: bool = Field(
        False, description="After the deadline, answer with what there is, and say so in `degraded`."
    )


class BatchBody(_Shape):
    """`POST /search/batch`: each search as it would be sent alone."""

    searches: list[dict[str, Any]] = Field(
        max_length=MOST_TEXTS, description="1 to `max_batch_queries` bodies of `POST /search`."
    )


class EmbeddingsBody(_Shape):
    """`POST /v1/embeddings`: only `input` is required."""

    input: str | Annotated[list[str], Field(max_length=MOST_TEXTS)] = Field(
        description="A text, or 1 to `max_batch_queries` of them."
    )
    model: str | None = Field(
        None, description="The index's model, with or without its hash; may be left out."
    )
    input_type: Literal["query", "document"] = Field(
        "query", description="Which tower; `document` needs a service that holds that tower."
    )
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or their bytes (float32, little-endian) in base64."
    )
    dimensions: int | None = Field(None, description="The model's own; may be left out.")
    user: str | None = Field(None, description="Ignored.")


class IndexShape(_Shape):
    """Which index answered."""

    version: str
    model: str


class TermShape(_Shape):
    """A word of the query and the weight that the query tower read for it."""

    word: str
    idf: float
    weight: float


class QueryShape(_Shape):
    """How the query was read."""

    text: str
    tokens: int
    truncated: bool
    terms: list[TermShape]


class HitShape(_Shape):
    """One document that was found."""

    rank: int
    id: str
    score: float
    scores: dict[Literal["dense"], float]
    fields: dict[str, str | list[str]]
    metadata: dict[str, Any]


class TimingsShape(_Shape):
    """Milliseconds of each stage that the request went through."""

    queue: float | None = None
    preprocess: float | None = None
    encode: float | None = None
    search: float | None = None
    fetch: float | None = None
    cache: float | None = None


class SearchResult(_Shape):
    """The answer of `POST /search`."""

    request_id: str
    took_ms: float
    degraded: list[str]
    index: IndexShape
    query: QueryShape
    hits: list[HitShape]
    timings_ms: TimingsShape


class BatchItem(_Shape):
    """The answer to one search of a batch: what was found, or a problem."""

    status: int
    degraded: list[str] | None = None
    index: IndexShape | None = None
    query: QueryShape | None = None
    hits: list[HitShape] | None = None
    timings_ms: TimingsShape | None = None
    problem: "ProblemBody | None" = None


class BatchResult(_Shape):
    """The answer of `POST /search/batch`."""

    request_id: str
    took_ms: float
    index: IndexShape
    results: list[BatchItem]


class EmbeddingShape(_Shape):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class UsageShape(_Shape):
    """How much was read."""

    prompt_tokens: int
    total_tokens: int
    truncated: list[int]


class EmbeddingsResult(_Shape):
    """The answer of `POST /v1/embeddings`."""

    object: Literal["list"]
    data: list[EmbeddingShape]
    model: str
    usage: UsageShape


class DocumentBody(_Shape):
    """The answer of `GET /documents/{id}`."""

    id: str
    fields: dict[str, str | list[str]]
    metadata: dict[str, Any]
    index: IndexShape


class FaultShape(_Shape):
    """One thing wrong with a request's body."""

    pointer: str
    detail: str


class ProblemBody(_Shape):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    errors: list[FaultShape]
