"""The components of an index, in the order of building and opening."""

from typing import Any

from glow.index.columns import COLUMNS
from glow.index.component import Component
from glow.index.late_interaction import LATE_INTERACTION
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.passages import PASSAGES
from glow.index.postings import POSTINGS
from glow.index.spelling import SPELLING
from glow.index.stored_fields import STORED_FIELDS
from glow.index.token_embeddings import TOKEN_EMBEDDINGS
from glow.index.vectors import VECTORS

__all__ = ["COMPONENTS"]

COMPONENTS: list[Component[Any, Any, Any, Any]] = [
    STORED_FIELDS,
    COLUMNS,
    PASSAGES,
    POSTINGS,
    SPELLING,
    LEARNED_SPARSE,
    TOKEN_EMBEDDINGS,
    LATE_INTERACTION,
    VECTORS,
]
"""A list, so that a test can add a component."""
