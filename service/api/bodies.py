"""Bodies of requests, by which they are checked; those of a search are in `service/search/shapes.py`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from glow_service.search import Shape

__all__ = [
    "BatchBody",
    "DeleteBody",
    "DocumentsBody",
    "EmbeddingsBody",
    "FeedbackBody",
    "ReloadBody",
    "RollbackBody",
]

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


class ReloadBody(Shape):
    """No fields; the body is optional."""


class RollbackBody(Shape):
    """A version to make live; the body is optional."""

    version: str | None = Field(
        None, max_length=128, description="Version to make live; default: the previous one."
    )
