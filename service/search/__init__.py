"""A search: its request, its plan for one index, its stages, and the threads in which searches run."""

from glow_service.search.clock import NEVER, Deadline, StageClock
from glow_service.search.explanations import Explanations, explain, require_explainer
from glow_service.search.hits import LongHitsError, passage_document
from glow_service.search.plan import (
    MAX_ANSWER_BYTES,
    MAX_EXPLAINED_HITS,
    MAX_FILTER_TERMS,
    HighlightCall,
    SearchPlan,
    filter_terms_of,
    plan_search,
)
from glow_service.search.pool import ENCODE_THREADS, Admission, Job, SearchPool
from glow_service.search.render import index_name, list_fields, shown_fields
from glow_service.search.request import MAX_FAULTS, SearchRequest, Shape, fault, faults_of, parsed, refusal
from glow_service.search.run import SearchAnswer, SearchSession, query_tokens
from glow_service.search.why import DocumentSearch

__all__ = [
    "ENCODE_THREADS", "MAX_ANSWER_BYTES", "MAX_EXPLAINED_HITS", "MAX_FAULTS", "MAX_FILTER_TERMS", "NEVER", "Admission", "Deadline", "DocumentSearch", "Explanations",
    "HighlightCall", "Job", "LongHitsError", "SearchAnswer", "SearchPlan", "SearchPool", "SearchRequest",
    "SearchSession", "Shape", "StageClock", "explain", "fault", "faults_of", "filter_terms_of",
    "index_name", "list_fields", "parsed", "passage_document", "plan_search", "query_tokens", "refusal", "require_explainer",
    "shown_fields",
]  # fmt: skip
