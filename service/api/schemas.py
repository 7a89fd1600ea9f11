"""Request and response shapes; those of a search request are in `service/search/shapes.py`.

Requests are checked against theirs. Responses are plain dicts, because checking each one would cost more time than the
search. The shapes below describe them in OpenAPI, and tests compare real responses with them.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from glow_service.search import Shape

__all__ = ["DocumentBody", "ProblemBody", "SearchResult"]

MOST_TEXTS = 1_024
"""Largest value of `max_batch_queries`."""


class BatchBody(Shape):
    """Several searches."""

    searches: list[dict[str, Any]] = Field(
        max_length=MOST_TEXTS, description="1 to `max_batch_queries` bodies of `POST /search`."
    )


class EmbeddingsBody(Shape):
    """Texts to encode."""

    input: str | Annotated[list[str], Field(max_length=MOST_TEXTS)] = Field(
        description="A text, or 1 to `max_batch_queries` of them."
    )
    model: str | None = Field(
        None, description="The index's model; the hash and the encoder are optional: `glow-mini:document`."
    )
    input_type: Literal["query", "document"] | None = Field(
        None, description="Encoder, if `model` does not name it; `document` needs `document_model`."
    )
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="Numbers, or base64 of float32, little-endian."
    )
    dimensions: int | None = Field(None, description="The model's dimensions; other values are refused.")
    user: str | None = Field(None, description="Ignored.")


class IndexShape(Shape):
    """Index version and model."""

    version: str = Field(description="Name of the index version.")
    model: str = Field(description="The model's name and hash.")


class TermShape(Shape):
    """A word of the query, with its idf and weight."""

    word: str = Field(description="The word after preprocessing.")
    idf: float = Field(description="Inverse document frequency, at least 0.")
    weight: float = Field(description="Input of the query encoder.")
    known: bool = Field(description="Whether the index has the word.")


class CorrectedShape(Shape):
    """Corrected typos."""

    text: str = Field(description="The corrected query.")
    words: dict[str, str] = Field(description="Typos and their corrections.")


class WordShape(Shape):
    """A word of a query or document, as its encoder read it."""

    field: str = Field(description="Field of the document, or `query`.")
    word: str = Field(description="The word after preprocessing.")
    tf: float = Field(description="Occurrences in the field, before truncation.")
    idf: float = Field(description="Inverse document frequency, at least 0.")
    weight: float = Field(description="Input of the encoder.")
    attention: float = Field(description="Fraction of the [CLS] attention in the last layer, 0 to 1.")


class QueryExplanation(Shape):
    """The query, as its encoder read it."""

    terms: list[WordShape] = Field(description="Words of the query.")


class ImpactShape(Shape):
    """A word's part of a lexical score."""

    word: str = Field(description="Word of the query.")
    impact: float = Field(description="Its part of the BM25 score.")


class DeltaShape(Shape):
    """Change of a dense score if a word is removed from the query."""

    word: str = Field(description="Word of the query.")
    delta: float = Field(description="Change of the cosine without the word; usually negative.")


class AnsweredShape(Shape):
    """A word of the query, and a document's most similar word."""

    word: str = Field(description="Word of the query.")
    answer: str = Field(description="The document's most similar word.")
    similarity: float = Field(description="Similarity of the two words, about -1 to 1.")
    weight: float = Field(description="Weight of the query word, 0 to 1.")


class AttendedShape(Shape):
    """A word of the query or document, and the attention of the re-ranker's last joined layer."""

    field: str = Field(description="Field of the document, or `query`.")
    word: str = Field(description="The word after preprocessing.")
    attention: float = Field(description="Fraction of the [CLS] attention, 0 to 1.")


class ExpansionShape(Shape):
    """What a word of the query adds to a hit: BM25 and learned impact."""

    word: str = Field(description="Word of the query.")
    bm25: float = Field(description="Its BM25 part of the score.")
    learned: float = Field(description="Its learned impact.")
    because: str | None = Field(None, description="Word of the document that the learned impact comes from.")


class HitExplanation(Shape):
    """Explanation of a hit."""

    terms: list[WordShape] = Field(description="Words of the document, as the encoder read them.")
    lexical: list[ImpactShape] | None = Field(None, description="BM25 of each query word.")
    leave_one_out: list[DeltaShape] | None = Field(None, description="Cosine change without each query word.")
    fused: dict[Literal["dense", "late", "words"], float] | None = Field(
        None, description="What each method adds to `scores.fused`; `words` is BM25."
    )
    late: list[AnsweredShape] | None = Field(
        None, description="Most similar document word of each query word."
    )
    rerank: list[AttendedShape] | None = Field(None, description="Words that the re-ranker attended to.")
    learned: list[ExpansionShape] | None = Field(
        None, description="BM25 and learned impact of each query word."
    )


class QueryShape(Shape):
    """The query, as GLOW read it."""

    text: str = Field(description="The query as it was sent.")
    tokens: int = Field(description="Tokens of the query, with [CLS] and [SEP].")
    truncated: bool = Field(description="Whether the query exceeded the model's token limit.")
    terms: list[TermShape] = Field(description="Distinct words, in order.")
    corrected: CorrectedShape | None = Field(None, description="Typo correction.")
    unknown: list[str] | None = Field(None, description="Words that no document contains.")
    explanation: QueryExplanation | None = Field(None, description="Terms with their weights and attention.")


class PassageShape(Shape):
    """Best passage of a document."""

    field: str = Field(description="Field of the passage.")
    start: int = Field(description="First character, from 0; list values are joined by line feeds.")
    end: int = Field(description="Character after the last one.")
    text: str = Field(description="Text of the passage.")


class HitShape(Shape):
    """A hit."""

    rank: int = Field(description="Rank, from 1; `offset` included.")
    id: str = Field(description="The document's id.")
    score: float = Field(description="Score that ranks; a probability if the response has a `confidence`.")
    scores: dict[Literal["dense", "lexical", "learned", "late", "fused", "rerank"], float] = Field(
        description="Score of each method: dense, lexical, learned, late, fused, rerank."
    )
    fields: dict[str, str | list[str]] = Field(description="Text fields that are not empty.")
    metadata: dict[str, Any] = Field(description="Metadata of the document.")
    truncated: list[str] | None = Field(
        None, description="Fields that were cut or omitted to keep within `max_answer_bytes`."
    )
    passage: PassageShape | None = Field(None, description="Best passage, in an index with passages.")
    highlights: dict[str, list[str]] | None = Field(None, description="Snippets of each field, as HTML.")
    vector: list[float] | None = Field(None, description="Stored vector, L2-normalized.")
    explanation: HitExplanation | None = Field(None, description="Explanation of the hit.")


class FacetValue(Shape):
    """A value and its number of documents."""

    value: str | float | int | bool = Field(description="The value.")
    count: int = Field(description="Documents with it.")


class FacetShape(Shape):
    """Values of a metadata field, with counts."""

    values: list[FacetValue] = Field(description="Values, most frequent first.")
    counted: int = Field(description="Documents counted.")
    approximate: bool = Field(description="Whether only some of the matching documents were counted.")


class TimingsShape(Shape):
    """Milliseconds of each stage that the search used."""

    queue: float | None = Field(None, description="Waiting for the encoder or a search thread.")
    preprocess: float | None = Field(None, description="Preprocessing the query.")
    encode: float | None = Field(None, description="Encoding the query.")
    filter: float | None = Field(None, description="Evaluating the filter.")
    search: float | None = Field(None, description="Searching the index.")
    late: float | None = Field(None, description="Comparing tokens.")
    rerank: float | None = Field(None, description="Re-ranking.")
    facets: float | None = Field(None, description="Counting facets.")
    fetch: float | None = Field(None, description="Reading documents.")
    highlight: float | None = Field(None, description="Making snippets.")
    explain: float | None = Field(None, description="Explaining hits.")
    cache: float | None = Field(None, description="Reading the cache.")


class SearchResult(Shape):
    """Hits of a search."""

    request_id: str = Field(description="The request's id, as in logs.")
    took_ms: float = Field(description="Milliseconds from the request's first byte.")
    degraded: list[str] = Field(
        description="What is missing: timeout, dense, lexical, late, rerank_partial, snippets."
    )
    index: IndexShape = Field(description="Index that was searched.")
    query: QueryShape = Field(description="The query as GLOW read it.")
    hits: list[HitShape] = Field(description="Hits, best first.")
    confidence: Literal["high", "low", "none"] | None = Field(None, description="Rating of the first hit.")
    facets: dict[str, FacetShape] | None = Field(None, description="Counts of each metadata field.")
    timings_ms: TimingsShape = Field(description="Milliseconds of each stage.")


class BatchItem(Shape):
    """Hits of one search of a batch, or a problem."""

    status: int = Field(description="HTTP status of this search alone.")
    degraded: list[str] | None = Field(None, description="As for a single search.")
    index: IndexShape | None = Field(None, description="Index that was searched.")
    query: QueryShape | None = Field(None, description="The query as GLOW read it.")
    hits: list[HitShape] | None = Field(None, description="Hits, best first.")
    confidence: Literal["high", "low", "none"] | None = Field(None, description="Rating of the first hit.")
    facets: dict[str, FacetShape] | None = Field(None, description="Counts of each metadata field.")
    timings_ms: TimingsShape | None = Field(None, description="Milliseconds of each stage.")
    problem: "ProblemBody | None" = Field(None, description="The error, in place of the other fields.")


class BatchResult(Shape):
    """Hits of all searches of a batch."""

    request_id: str = Field(description="The request's id, as in logs.")
    took_ms: float = Field(description="Milliseconds from the request's first byte.")
    index: IndexShape = Field(description="Index of all searches.")
    results: list[BatchItem] = Field(description="Results, in the order of the searches.")


class EmbeddingShape(Shape):
    """A vector."""

    object: Literal["embedding"] = Field(description="Always `embedding`.")
    index: int = Field(description="Position of the text, from 0.")
    embedding: list[float] | str = Field(description="The vector: numbers, or base64.")


class UsageShape(Shape):
    """Number of tokens."""

    prompt_tokens: int = Field(description="Tokens encoded.")
    total_tokens: int = Field(description="The same number.")
    truncated: list[int] = Field(description="Positions of texts that exceeded the token limit.")


class EmbeddingsResult(Shape):
    """Vectors of texts."""

    object: Literal["list"] = Field(description="Always `list`.")
    data: list[EmbeddingShape] = Field(description="Vectors, in the order of the texts.")
    model: str = Field(description="The model's name and hash.")
    usage: UsageShape = Field(description="Number of tokens.")


class ModelShape(Shape):
    """An encoder."""

    id: str = Field(description="Value for `model` in `POST /v1/embeddings`.")
    object: Literal["model"] = Field(description="Always `model`.")
    created: int = Field(description="Build time of the index, as Unix time.")
    owned_by: str = Field(description="Always `glow`.")
    root: str = Field(description="The model's name and hash.")


class ModelsResult(Shape):
    """Encoders of this service."""

    object: Literal["list"] = Field(description="Always `list`.")
    data: list[ModelShape] = Field(description="Encoders that this service has.")


class DocumentBody(Shape):
    """A document."""

    id: str = Field(description="The document's id.")
    fields: dict[str, str | list[str]] = Field(description="Text fields that are not empty.")
    metadata: dict[str, Any] = Field(description="Metadata of the document.")
    index: IndexShape = Field(description="Index with the document.")


class FeedbackBody(Shape):
    """A hit of a search, and what the user did with it."""

    request_id: str = Field(
        min_length=1, max_length=160, description="`request_id` of the search's response."
    )
    id: str = Field(min_length=1, max_length=512, description="The document's id.")
    kind: Literal["click", "like", "dislike"] = Field(description="What the user did.")
    rank: int | None = Field(None, ge=1, le=100_000, description="Rank of the hit.")
    dwell_s: float | None = Field(
        None,
        ge=0,
        le=86_400,
        description="Seconds that the user spent on the document; send the click again with it.",
    )
    user: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Distinguishes the users of one API key. GLOW stores only a keyed hash. Ignored without a key.",
    )


class FeedbackResult(Shape):
    """Accepted feedback."""

    status: Literal["noted"] = Field(description="Always `noted`.")


class FaultShape(Shape):
    """An invalid value of a request's body."""

    pointer: str = Field(description="JSON pointer (RFC 6901) to the invalid value.")
    detail: str = Field(description="What was found and what was expected.")


class DocumentsBody(Shape):
    """Documents to add or replace. The body can also be a single document, or JSON Lines."""

    documents: list[dict[str, Any]] = Field(
        description="1 to `max_write_documents` documents, each with `_id` and text."
    )


class DeleteBody(Shape):
    """Documents to delete: `ids`, `filter` or `all`. Only `filter` and `all` can be combined."""

    ids: list[str] | None = Field(
        None, description="1 to `max_write_documents` ids; unknown ids are not an error."
    )
    filter: dict[str, Any] | None = Field(
        None,
        description="As for a search, evaluated when applied. Without `all`, it must restrict something.",
    )
    all: bool = Field(False, description="Allows deleting every document.")


class RejectShape(Shape):
    """A rejected document."""

    place: int = Field(description="Position in the request, from 0.")
    id: str | None = Field(description="Its id, if it could be read.")
    reason: str = Field(description="Why it was rejected.")


class OperationResult(Shape):
    """A write and its state."""

    operation: str = Field(description="Operation id, for `GET /operations/{id}`.")
    state: Literal["waiting", "applied", "visible", "failed"] = Field(
        description="`applied`: a version has it; `visible`: all replicas serve that version."
    )
    version: str | None = Field(None, description="Index version with the write.")
    previous: str | None = Field(
        None, description="Version before a deletion by filter, for `glow rollback`."
    )
    counts: dict[str, int] | None = Field(None, description="Counts of the batch that applied it.")
    reason: str | None = Field(None, description="Why the write failed.")
    accepted: int | None = Field(None, description="Documents accepted.")
    rejected: int | None = Field(None, description="Documents rejected.")
    rejects: list[RejectShape] | None = Field(None, description="The first 100 rejected documents.")


class ProblemBody(Shape):
    """An error (RFC 9457)."""

    type: str = Field(description="Path that describes the problem: `/problems/` and the code.")
    title: str = Field(description="The problem in a few words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="What was found, what was expected, and what to do.")
    instance: str = Field(description="Path of the request.")
    code: str = Field(description="Stable code of the problem.")
    request_id: str = Field(description="The request's id, as in logs.")
    errors: list[FaultShape] = Field(description="Invalid values of the body.")
