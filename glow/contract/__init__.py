"""The responses of the HTTP API, each described once: the service makes them, OpenAPI shows them, the client reads them."""

from glow.contract.record import InvalidValue, Problem, Record, encode
from glow.contract.resources import (
    AdminResult,
    DocumentResult,
    Embedding,
    EmbeddingsResult,
    FeedbackResult,
    FieldInfo,
    IndexInfo,
    IndexName,
    Info,
    ModelInfo,
    ModelsResult,
    OperationResult,
    Reject,
    Usage,
    Workers,
)
from glow.contract.results import (
    AnsweredWord,
    AttendedWord,
    BatchItem,
    BatchResult,
    Correction,
    ExpandedWord,
    Facet,
    FacetValue,
    FoundHits,
    Hit,
    HitExplanation,
    Passage,
    Query,
    QueryExplanation,
    QueryTerm,
    ReadWord,
    SearchResult,
    WordDelta,
    WordImpact,
)

__all__ = [
    "AdminResult", "AnsweredWord", "AttendedWord", "BatchItem", "BatchResult", "Correction", "DocumentResult", "Embedding",
    "EmbeddingsResult", "ExpandedWord", "Facet", "FacetValue", "FeedbackResult", "FieldInfo", "FoundHits", "Hit",
    "HitExplanation", "IndexInfo", "IndexName", "Info", "InvalidValue", "ModelInfo", "ModelsResult", "OperationResult", "Passage",
    "Problem", "Query", "QueryExplanation", "QueryTerm", "ReadWord", "Record", "Reject", "SearchResult", "Usage", "WordDelta", "WordImpact",
    "Workers", "encode",
]  # fmt: skip
