"""Metadata conditions: parsed from a request and turned into row masks; and facet counts."""

from glow.index.columns.filters.facets import (
    FacetCounts,
    FacetRequest,
    ValueCount,
    count_values,
    parse_facets,
)
from glow.index.columns.filters.masks import FilterMasks, evaluate
from glow.index.columns.filters.parse import MAX_FAULTS, count_terms, field_of, parse_filter
from glow.index.columns.filters.terms import (
    And,
    Between,
    Exists,
    Expression,
    Not,
    OneOf,
    Or,
    restricts_nothing,
)

__all__ = [
    "MAX_FAULTS",
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
    "ValueCount",
    "count_terms",
    "count_values",
    "evaluate",
    "field_of",
    "parse_facets",
    "parse_filter",
    "restricts_nothing",
]
