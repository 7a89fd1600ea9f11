"""Conditions on metadata: read from a request, turned into row masks; and counts of values."""

from glow.search.filters.facets import FacetCounts, FacetRequest, count_values, parse_facets
from glow.search.filters.masks import FilterMasks, evaluate
from glow.search.filters.parse import count_terms, field_of, parse_filter
from glow.search.filters.terms import And, Between, Exists, Expression, Not, OneOf, Or, restricts_nothing

__all__ = [
    "And",
    "Between",
    "Exists",
    "Expression",
    "FacetCounts",
    "FacetRequest",
    "FilterMasks",
    "Not",
    "OneOf",
    "Or",
    "count_terms",
    "count_values",
    "evaluate",
    "field_of",
    "parse_facets",
    "parse_filter",
    "restricts_nothing",
]  # fmt: skip
