"""The responses of the HTTP API, each described once: the service makes them, OpenAPI shows them, the client reads them."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.json import Encoder


class Record(Struct, frozen=True, omit_defaults=True):
    """A JSON object of a response; a member with its default value is not sent. Readers ignore unknown members."""


def encode(value: Any) -> bytes:
    """A record, or plain values with records in them, as JSON in UTF-8."""
    return _ENCODER.encode(value)


def _plain(value: Any) -> str:
    # A word that knows how it was spelled is a text for everybody else.
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


_ENCODER = Encoder(enc_hook=_plain)


def says(text: str) -> Meta:
    """The description of a member in OpenAPI."""
    return Meta(description=text)


def one_of(*values: str) -> Meta:
    """The values of a text. A client accepts others, because a newer service may have more."""
    return Meta(extra_json_schema={"enum": list(values)})


class InvalidValue(Record, frozen=True):
    """An invalid value of a request's body."""

    pointer: Annotated[str, says('JSON pointer (RFC 6901) to the invalid value; "" is the whole body.')]
    detail: Annotated[str, says("What was found and what was expected.")]


class Problem(Struct, frozen=True):
    """An error (RFC 9457). The service sends every member; a client needs none of them, since proxies send problems, too."""

    type: Annotated[str, says("Path that describes the problem: `/problems/` and the code.")] = ""
    title: Annotated[str, says("The problem in a few words.")] = ""
    status: Annotated[int, says("HTTP status.")] = 500
    detail: Annotated[str, says("What was found, what was expected, and what to do.")] = ""
    instance: Annotated[str, says("Path of the request.")] = ""
    code: Annotated[str, says("Stable code of the problem.")] = ""
    request_id: Annotated[str, says("The request's id, as in logs.")] = ""
    errors: Annotated[tuple[InvalidValue, ...], says("Invalid values of the body.")] = ()


class IndexName(Record, frozen=True):
    """Index version and model."""

    version: Annotated[str, says("Name of the index version.")]
    model: Annotated[str, says("The model's name and hash.")]


class IndexInfo(IndexName, frozen=True):
    """Index version and model, its components, and what each says of itself."""

    created: Annotated[str, says("When it was built.")] = ""
    built_by: Annotated[str, says("Version of GLOW that built it.")] = ""
    hashes: Annotated[dict[str, str], says("Hashes of its parents.")] = {}
    components: Annotated[tuple[str, ...], says("Components besides vectors and documents.")] = ()
    documents: Annotated[int, says("Number of documents.")] = 0
    dimensions: Annotated[int, says("Dimensions of a vector.")] = 0
    columns: Annotated[dict[str, Any] | None, says("Metadata fields and their properties.")] = None


class FieldInfo(Record, frozen=True):
    """A text field."""

    name: Annotated[str, says("Its name.")]
    kind: Annotated[str | None, says("How its text is read.")] = None
    tokens: Annotated[int | None, says("Most tokens that the encoder reads.")] = None
    list: Annotated[bool | None, says("Whether responses always show it as a list.")] = None


class Workers(Record, frozen=True):
    """The workers of this service."""

    count: Annotated[int, says("Number of workers.")]
    following: Annotated[int, says("Workers that serve the live version.")]
    refusing: Annotated[int, says("Workers that refused the version that CURRENT names.")]


class Info(Record, frozen=True):
    """The service, its index and its settings."""

    version: Annotated[str, says("Version of GLOW.")]
    index: IndexInfo
    fields: Annotated[tuple[FieldInfo, ...], says("Text fields.")]
    retrievers: Annotated[tuple[str, ...], says("Valid values of `retriever`.")]
    name: Annotated[str, says("Always `glow`.")] = ""
    device: Annotated[str, says("Device of the encoders.")] = ""
    providers: Annotated[tuple[str, ...], says("Execution providers of ONNX Runtime.")] = ()
    search_threads: Annotated[int, says("Threads that search.")] = 0
    workers: Workers | None = None
    feedback: Annotated[bool, says("Whether feedback is logged.")] = False
    settings: Annotated[dict[str, Any], says("Settings, without secrets.")] = {}


class AdminResult(Record, frozen=True):
    """The live version and the workers."""

    previous: Annotated[str, says("Version that was live before the request.")]
    live: IndexName
    workers: Workers


class FeedbackResult(Record, frozen=True):
    """Accepted feedback."""

    status: Annotated[str, one_of("noted"), says("Always `noted`.")]


class ListedDocument(Record, frozen=True):
    """A document of a list."""

    id: Annotated[str, says("The document's id.")]
    fields: Annotated[dict[str, str | tuple[str, ...]], says("Text fields that are not empty.")]
    metadata: Annotated[Mapping[str, Any], says("Metadata of the document.")]


class DocumentResult(ListedDocument, frozen=True):
    """A document."""

    index: Annotated[IndexName, says("Index with the document.")]


class DocumentsResult(Record, frozen=True):
    """A page of documents, in the order of their ids."""

    documents: Annotated[tuple[ListedDocument, ...], says("The documents.")]
    index: Annotated[IndexName, says("Index with the documents.")]
    next: Annotated[str | None, says("Value of `after` for the next page; left out on the last page.")] = None


class Reject(Record, frozen=True):
    """A rejected document."""

    place: Annotated[int, says("Position in the request, from 0.")]
    id: Annotated[str | None, says("Its id, if it could be read.")]
    reason: Annotated[str, says("Why it was rejected.")]


class OperationResult(Record, frozen=True):
    """A write and its state."""

    operation: Annotated[str, says("Operation id, for `GET /operations/{id}`.")]
    state: Annotated[
        str,
        one_of("waiting", "applied", "visible", "failed"),
        says("`applied`: a version has it; `visible`: all workers of this service serve that version."),
    ]
    version: Annotated[str, says("Index version with the write.")] = ""
    previous: Annotated[str, says("Version before a deletion by filter, for `glow rollback`.")] = ""
    counts: Annotated[dict[str, int], says("Counts of the batch that applied it.")] = {}
    reason: Annotated[str, says("Why the write failed.")] = ""
    accepted: Annotated[int | None, says("Documents accepted.")] = None
    rejected: Annotated[int | None, says("Documents rejected.")] = None
    rejects: Annotated[tuple[Reject, ...] | None, says("The first 100 rejected documents.")] = None


class Embedding(Record, frozen=True):
    """A vector."""

    object: Annotated[str, one_of("embedding"), says("Always `embedding`.")]
    index: Annotated[int, says("Position of the text, from 0.")]
    embedding: Annotated[tuple[float, ...] | str, says("The vector: numbers, or base64.")]


class Usage(Record, frozen=True):
    """Number of tokens."""

    prompt_tokens: Annotated[int, says("Tokens encoded.")]
    total_tokens: Annotated[int, says("The same number.")]
    truncated: Annotated[tuple[int, ...], says("Positions of texts that exceeded the token limit.")]


class EmbeddingsResult(Record, frozen=True):
    """Vectors of texts."""

    object: Annotated[str, one_of("list"), says("Always `list`.")]
    data: Annotated[tuple[Embedding, ...], says("Vectors, in the order of the texts.")]
    model: Annotated[str, says("The model's name and hash.")]
    usage: Annotated[Usage, says("Number of tokens.")]

    @property
    def vectors(self) -> tuple[tuple[float, ...], ...]:
        """The vectors, L2-normalized, in the order of the texts; none that were requested as base64."""
        return tuple(item.embedding for item in self.data if not isinstance(item.embedding, str))


class ModelInfo(Record, frozen=True):
    """An encoder."""

    id: Annotated[str, says("Value for `model` in `POST /v1/embeddings`.")]
    object: Annotated[str, one_of("model"), says("Always `model`.")]
    created: Annotated[int, says("Build time of the index, as Unix time.")]
    owned_by: Annotated[str, says("Always `glow`.")]
    root: Annotated[str, says("The model's name and hash.")]


class ModelsResult(Record, frozen=True):
    """Encoders of this service."""

    object: Annotated[str, one_of("list"), says("Always `list`.")]
    data: Annotated[tuple[ModelInfo, ...], says("Encoders that this service has.")]


_STAGES = (
    *("queue", "preprocess", "encode", "filter", "search", "rerank", "facets", "fetch", "highlight", "explain"),
    "cache",
)  # fmt: skip
Missing = Annotated[str, one_of("timeout", "dense", "lexical", "rerank_partial")]
Timings = Annotated[dict[str, float], Meta(extra_json_schema={"propertyNames": {"enum": list(_STAGES)}})]


class QueryTerm(Record, frozen=True):
    """A word of the query, with its idf and weight."""

    word: Annotated[str, says("The word after preprocessing.")]
    idf: Annotated[float, says("Inverse document frequency, at least 0.")]
    weight: Annotated[float, says("Input of the query encoder.")]
    known: Annotated[bool, says("Whether the index has the word.")]


class Correction(Record, frozen=True):
    """Corrected typos."""

    text: Annotated[str, says("The corrected query.")]
    words: Annotated[dict[str, str], says("Typos and their corrections.")]


class ReadWord(Record, frozen=True):
    """A word of a query or document, as its encoder read it."""

    field: Annotated[str, says("Field of the document, or `query`.")]
    word: Annotated[str, says("The word after preprocessing.")]
    tf: Annotated[float, says("Occurrences in the field, before truncation.")]
    idf: Annotated[float, says("Inverse document frequency, at least 0.")]
    weight: Annotated[float, says("Input of the encoder.")]
    attention: Annotated[float, says("Fraction of the [CLS] attention in the last layer, 0 to 1.")]


class QueryExplanation(Record, frozen=True):
    """The query, as its encoder read it."""

    terms: Annotated[tuple[ReadWord, ...], says("Words of the query.")]


class WordImpact(Record, frozen=True):
    """A word's part of a lexical score."""

    word: Annotated[str, says("Word of the query.")]
    impact: Annotated[float, says("Its part of the BM25 score.")]
    because: Annotated[str | None, says("Its synonym or completion that the document holds.")] = None


class WordDelta(Record, frozen=True):
    """Change of a dense score if a word is removed from the query."""

    word: Annotated[str, says("Word of the query.")]
    delta: Annotated[float, says("Change of the cosine without the word; usually negative.")]


class AttendedWord(Record, frozen=True):
    """A word of the query or document, and the attention of the re-ranker's last joined layer."""

    field: Annotated[str, says("Field of the document, or `query`.")]
    word: Annotated[str, says("The word after preprocessing.")]
    attention: Annotated[float, says("Fraction of the [CLS] attention, 0 to 1.")]


class ExpandedWord(Record, frozen=True):
    """What a word of the query adds to a hit: BM25 and learned impact."""

    word: Annotated[str, says("Word of the query.")]
    bm25: Annotated[float, says("Its BM25 part of the score.")]
    learned: Annotated[float, says("Its learned impact.")]
    because: Annotated[str | None, says("Word of the document that the learned impact comes from.")] = None


class HitExplanation(Record, frozen=True):
    """Explanation of a hit."""

    terms: Annotated[tuple[ReadWord, ...], says("Words of the document, as the encoder read them.")]
    lexical: Annotated[tuple[WordImpact, ...] | None, says("BM25 of each query word.")] = None
    learned: Annotated[tuple[ExpandedWord, ...] | None, says("BM25 and learned impact of each word.")] = None
    leave_one_out: Annotated[tuple[WordDelta, ...] | None, says("Cosine change without each word.")] = None
    fused: Annotated[dict[str, float] | None, says("What dense and words (BM25) add to `fused`.")] = None
    rerank: Annotated[tuple[AttendedWord, ...] | None, says("Words that the re-ranker attended to.")] = None


class Query(Record, frozen=True):
    """The query, as GLOW read it."""

    text: Annotated[str, says("The query as it was sent.")]
    tokens: Annotated[int, says("Tokens of the query, with [CLS] and [SEP].")]
    truncated: Annotated[bool, says("Whether the query exceeded the model's token limit.")]
    terms: Annotated[tuple[QueryTerm, ...], says("Distinct words, in order.")]
    corrected: Annotated[Correction | None, says("Corrected typos and codes.")] = None
    unknown: Annotated[tuple[str, ...], says("Words that no document contains.")] = ()
    synonyms: Annotated[dict[str, tuple[str, ...]], says("Words of the query and their synonyms.")] = {}
    completed: Annotated[tuple[str, ...], says("Words that begin with the last one.")] = ()
    explanation: Annotated[QueryExplanation | None, says("Terms with their weights and attention.")] = None

    @property
    def searched(self) -> str:
        """The query with its typos corrected."""
        return self.text if self.corrected is None else self.corrected.text


class Passage(Record, frozen=True):
    """Best passage of a document."""

    field: Annotated[str, says("Field of the passage.")]
    start: Annotated[int, says("First character, from 0; list values are joined by line feeds.")]
    end: Annotated[int, says("Character after the last one.")]
    text: Annotated[str, says("Text of the passage.")]


class Hit(Record, frozen=True):
    """A hit."""

    rank: Annotated[int, says("Rank, from 1; `offset` included.")]
    id: Annotated[str, says("The document's id.")]
    score: Annotated[float, says("Score that ranks; a probability if the response has a `confidence`.")]
    scores: Annotated[dict[str, float], says("Score of each method: dense, lexical, learned, fused, rerank.")]
    fields: Annotated[dict[str, str | tuple[str, ...]], says("Text fields that are not empty.")]
    metadata: Annotated[Mapping[str, Any], says("Metadata of the document.")]
    passage: Annotated[Passage | None, says("Best passage, in an index with passages.")] = None
    vector: Annotated[tuple[float, ...] | None, says("Stored vector, L2-normalized.")] = None
    truncated: Annotated[tuple[str, ...], says("Fields cut or left out, by `max_answer_bytes`.")] = ()
    highlights: Annotated[dict[str, tuple[str, ...]] | None, says("Snippets of each field, as HTML.")] = None
    explanation: Annotated[HitExplanation | None, says("Explanation of the hit.")] = None

    def values(self, name: str) -> tuple[str, ...]:
        """The values of a field, in order; empty if the hit does not have it."""
        value = self.fields.get(name, ())
        return (value,) if isinstance(value, str) else tuple(value)

    def text(self, name: str) -> str:
        """The first value of a field; "" if the hit does not have it."""
        return next(iter(self.values(name)), "")

    @property
    def url(self) -> str:
        """The address: the field `url`, or metadata of this name if the model has no such field."""
        return self.text("url") or str(self.metadata.get("url") or "")


class FacetValue(Record, frozen=True):
    """A value and its number of documents."""

    value: Annotated[str | float | int | bool, says("The value.")]
    count: Annotated[int, says("Documents with it.")]


class Facet(Record, frozen=True):
    """Values of a metadata field, with counts."""

    values: Annotated[tuple[FacetValue, ...], says("Values, most frequent first.")]
    counted: Annotated[int, says("Documents counted.")]
    approximate: Annotated[bool, says("Whether only some of the matching documents were counted.")]


class Matching(Record, frozen=True, omit_defaults=False):
    """Why documents match."""

    words: Annotated[
        str,
        one_of("all", "some", "none"),
        says("Whether they hold all words of the query, most of them by idf (with `any`: some), or none do."),
    ]
    similar: Annotated[int, says("Documents that match only because they are near.")]


Confidence = Annotated[str, one_of("high", "low", "none")]


class FoundHits(Record, frozen=True):
    """The members of a search response that depend only on index and request, so that caches keep them."""

    index: Annotated[IndexName, says("Index that was searched.")]
    query: Annotated[Query, says("The query as GLOW read it.")]
    hits: Annotated[tuple[Hit, ...], says("Hits, best first.")]
    total: Annotated[int | None, says("Number of matches; left out if it is not known.")] = None
    matching: Annotated[Matching | None, says("Why they match.")] = None
    confidence: Annotated[Confidence | None, says("Rating of the first hit.")] = None
    facets: Annotated[dict[str, Facet], says("Counts of each metadata field.")] = {}


class SearchResult(FoundHits, frozen=True, kw_only=True):
    """Hits of a search."""

    request_id: Annotated[str, says("The request's id, as in logs.")]
    took_ms: Annotated[float, says("Milliseconds from the request's first byte.")]
    degraded: Annotated[tuple[Missing, ...], says("What is missing from the result.")]
    timings_ms: Annotated[Timings, says(f"Milliseconds of each stage: {', '.join(_STAGES)}.")]


class Suggestion(Record, frozen=True):
    """What a query may become."""

    text: Annotated[str, says("The query, or the title of a document.")]
    kind: Annotated[str, one_of("title", "phrase"), says("Which of both.")]
    id: Annotated[str | None, says("The document's id, of a title.")] = None


class SuggestResult(Record, frozen=True):
    """Suggestions for a query that is being typed."""

    request_id: Annotated[str, says("The request's id, as in logs.")]
    took_ms: Annotated[float, says("Milliseconds from the request's first byte.")]
    index: Annotated[IndexName, says("Index whose words and titles they are.")]
    suggestions: Annotated[tuple[Suggestion, ...], says("Phrases by frequency, then titles, best first.")]


class HeldWords(Record, frozen=True, omit_defaults=False):
    """Content words of a query that a document holds or lacks."""

    matched: Annotated[tuple[str, ...], says("Words that it holds, in any form.")]
    missing: Annotated[tuple[str, ...], says("Words that it lacks.")]
    because: Annotated[dict[str, str], says("Matched words, and what the document holds in their place.")]


class EncodedPart(Record, frozen=True):
    """How much of a document, or of its best passage, the encoder read."""

    tokens: Annotated[int, says("Tokens that it read.")]
    limit: Annotated[int, says("Most tokens that it reads.")]
    truncated: Annotated[bool, says("Whether text was cut.")]


_STEPS = one_of("filter", "syntax", "match", "candidates", "min_score", "group_by")


class DocumentExplanation(Record, frozen=True, omit_defaults=False):
    """Why a search returns a document, or does not."""

    index: Annotated[IndexName, says("Index that was searched.")]
    id: Annotated[str, says("The document's id.")]
    summary: Annotated[str, says("The reason in a sentence.")]
    found: Annotated[bool, says("Whether it is a match.")]
    rank: Annotated[int | None, says("Its rank among all matches, as pages show it.")]
    total: Annotated[int | None, says("Number of matches; null if it is not known.")]
    score: Annotated[float | None, says("Score that ranks it among the matches.")]
    ranks: Annotated[dict[str, int], says("Its rank by each method, among all allowed documents.")]
    scores: Annotated[dict[str, float], says("Score of each method: dense, lexical, learned, fused.")]
    words: Annotated[HeldWords | None, says("Words of the query; null without a lexical index.")]
    filter: Annotated[tuple[dict[str, Any], ...], says("Smallest parts of the filter that exclude it.")]
    constraints: Annotated[tuple[str, ...], says("Phrases and exclusions that it does not satisfy.")]
    cut_by: Annotated[Annotated[str, _STEPS] | None, says("First step that removes it.")]
    read: Annotated[EncodedPart, says("How much of it the encoder read.")]


class ExplainResult(DocumentExplanation, frozen=True, kw_only=True):
    """Why a search returns a document, or does not."""

    request_id: Annotated[str, says("The request's id, as in logs.")]
    took_ms: Annotated[float, says("Milliseconds from the request's first byte.")]


class BatchItem(Record, frozen=True):
    """Hits of one search of a batch, or a problem."""

    status: Annotated[int, says("HTTP status of this search alone.")]
    degraded: Annotated[tuple[Missing, ...] | None, says("As for a single search.")] = None
    index: Annotated[IndexName | None, says("Index that was searched.")] = None
    query: Annotated[Query | None, says("The query as GLOW read it.")] = None
    hits: Annotated[tuple[Hit, ...] | None, says("Hits, best first.")] = None
    total: Annotated[int | None, says("Number of matches; left out if it is not known.")] = None
    matching: Annotated[Matching | None, says("Why they match.")] = None
    confidence: Annotated[Confidence | None, says("Rating of the first hit.")] = None
    facets: Annotated[dict[str, Facet], says("Counts of each metadata field.")] = {}
    timings_ms: Annotated[Timings | None, says("Milliseconds of each stage.")] = None
    problem: Annotated[Problem | None, says("The error, in place of the other fields.")] = None


class BatchResult(Record, frozen=True):
    """Hits of all searches of a batch."""

    request_id: Annotated[str, says("The request's id, as in logs.")]
    took_ms: Annotated[float, says("Milliseconds from the request's first byte.")]
    index: Annotated[IndexName, says("Index of all searches.")]
    results: Annotated[tuple[BatchItem, ...], says("Results, in the order of the searches.")]
