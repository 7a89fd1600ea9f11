"""The search of a checked request, and the pools in which searches run in parallel."""

from glow_service.search.calls import (
    MOST_PLAIN,
    MOST_READING,
    HighlightCall,
    SearchAnswer,
    SearchCall,
    SearchLimits,
    request_cost,
    texts_cost,
)
from glow_service.search.checks import MAX_FAULTS, CheckedSearch, check_search, faults_of
from glow_service.search.clock import NEVER, Deadline, StageClock
from glow_service.search.explanations import Explanations, encoded_of, explain, require_explainer, to_bytes
from glow_service.search.hits import LongHitsError, passage_document
from glow_service.search.render import index_name, list_fields, shown_fields
from glow_service.search.session import SearchSession, query_tokens
from glow_service.search.shapes import SearchBody, Shape
from glow_service.search.work_pool import (
    BULK_NICENESS,
    RERANK_NICENESS,
    Admission,
    Batcher,
    Job,
    SearchPool,
    WorkPool,
    WorkPoolName,
)

__all__ = [
    "BULK_NICENESS",
    "MAX_FAULTS",
    "MOST_PLAIN",
    "MOST_READING",
    "NEVER",
    "RERANK_NICENESS",
    "Admission",
    "Batcher",
    "CheckedSearch",
    "Deadline",
    "Explanations",
    "HighlightCall",
    "Job",
    "LongHitsError",
    "SearchAnswer",
    "SearchBody",
    "SearchCall",
    "SearchLimits",
    "SearchPool",
    "SearchSession",
    "Shape",
    "StageClock",
    "WorkPool",
    "WorkPoolName",
    "check_search",
    "encoded_of",
    "explain",
    "faults_of",
    "index_name",
    "list_fields",
    "passage_document",
    "query_tokens",
    "request_cost",
    "require_explainer",
    "shown_fields",
    "texts_cost",
    "to_bytes",
]  # fmt: skip
