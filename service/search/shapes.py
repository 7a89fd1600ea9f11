"""The shapes of `POST /search` requests, against which they are checked."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from glow.search import MAX_DEPTH, Retriever

__all__ = [
    "MOST_FIELDS", "ExplainBody", "FacetBody", "FusionBody", "HighlightBody", "ParamsBody", "RerankBody", "SearchBody",
    "Shape",
]  # fmt: skip

# Pydantic looks at every member of a list before it says what is wrong with them.
MOST_FIELDS = 64
MOST_DIMENSIONS = 8_192
MOST_SORT_KEYS = MOST_BOOSTS = 8
MOST_FACETS = 16
MOST_FACET_VALUES = 100


class Shape(BaseModel):
    """A JSON object whose members are all known and of the very types that are declared."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ParamsBody(Shape):
    """How thoroughly to search; what the index's kind does not know has no effect."""

    ef_search: int | None = Field(None, ge=1, le=10_000, description="Candidates that an hnsw index keeps.")
    nprobe: int | None = Field(None, ge=1, le=65_536, description="Lists that an ivf index looks into.")
    exact: bool = Field(
        False, description="Compare with every vector, as it is stored: those of ivf-pq in 8 bits."
    )


_NO_PARAMS = ParamsBody(ef_search=None, nprobe=None, exact=False)


class FusionBody(Shape):
    """How `hybrid` makes one ranking of two; what is left out is the index's own."""

    method: Literal["convex", "rrf"] | None = Field(
        None, description="`convex`: a weighted mean of normalised scores; `rrf`: reciprocal ranks."
    )
    k: int | None = Field(None, ge=0, le=10_000, description="The constant of `rrf`.")
    weights: dict[Literal["dense", "lexical"], float] | None = Field(
        None, description="Weight of each part, at least 0; not all 0."
    )


class FacetBody(Shape):
    """A metadata field whose values are counted."""

    field: str = Field(description="A metadata field of the index.")
    limit: int = Field(10, ge=1, le=MOST_FACET_VALUES, description="Most values to return.")


class HighlightBody(Shape):
    """Where and how much to cut out of a hit's texts."""

    fields: list[str] | None = Field(
        None, max_length=MOST_FIELDS, description="Fields to look into; those that are returned where absent."
    )
    fragments: int = Field(2, ge=1, le=10, description="Most snippets of a field.")
    fragment_chars: int = Field(200, ge=40, le=2_000, description="Most characters of a snippet.")


class ExplainBody(Shape):
    """What to explain beside the words' weights and attention."""

    leave_one_out: bool = Field(
        False, description="How each score changes when one word of the query is left out."
    )


class LikeBody(Shape):
    """A document of the index."""

    id: str = Field(min_length=1, max_length=1_024, description="Its id.")


class SortBody(Shape):
    """By what hits are ordered."""

    field: str = Field(description="A metadata field, or `score`.")
    order: Literal["asc", "desc"] = Field("asc", description="Documents without a value come last in both.")


class RecencyBody(Shape):
    """Newer documents first, by how much."""

    field: str = Field(description="A metadata field that holds dates.")
    half_life: str = Field(
        "30d", description="Age at which half of the boost is left: a number and s, m, h, d, w, M or y."
    )
    weight: float = Field(
        0.5, gt=0, le=100, description="How much more a document dated now scores: 0.5 is half more."
    )


class BoostBody(Shape):
    """Either a filter with a factor, or recency."""

    filter: dict[str, Any] | None = Field(
        None, description="Documents that match score `factor` times as much."
    )
    factor: float = Field(2.0, gt=0, le=100, description="Of the score; below 1 they fall behind.")
    recency: RecencyBody | None = None


class GroupBody(Shape):
    """At most so many hits for each value of a metadata field."""

    field: str = Field(description="A metadata field.")
    size: int = Field(1, ge=1, le=100, description="Most hits of one value.")


class RerankBody(Shape):
    """How the first hits are read again, word by word together with the query."""

    depth: int = Field(50, ge=1, le=MAX_DEPTH, description="How many of the first hits.")
    method: Literal["join", "late"] = Field(
        "join",
        description="`join`: by the joined layers; `late`: by late interaction alone, which is cheaper.",
    )


class SearchBody(Shape):
    """`POST /search`: `query` is required, or one of `vector`, `like` and `filter`."""

    query: str | None = Field(
        None,
        description="What to search for, at most `max_query_chars`; may be blank where a filter is given.",
    )
    vector: list[float] | None = Field(
        None,
        max_length=MOST_DIMENSIONS,
        description="In place of a query: a vector of the index's dimensions.",
    )
    like: LikeBody | None = Field(
        None, description="In place of a query: a document; what is like it is found."
    )
    top_k: int = Field(10, ge=1, description="Hits to return, at most `max_top_k`.")
    offset: int = Field(0, ge=0, description="Hits to pass over first.")
    candidates: int | None = Field(
        None, ge=1, description="Hits to gather; at least offset + top_k, at most `max_candidates`."
    )
    retriever: Retriever | None = Field(
        None,
        description="How to find candidates: by vectors, by words (`learned`: also by words of like meaning), or both; `hybrid` "
        "where absent and the index has words, else `dense`.",
    )
    fusion: FusionBody | None = Field(None, description="How `hybrid` fuses; needs that retriever.")
    filter: dict[str, Any] | None = Field(
        None, description="Which documents may be found; see docs/filters.md."
    )
    min_score: float | None = Field(None, description="Least score of a hit.")
    sort: list[SortBody] | None = Field(
        None, max_length=MOST_SORT_KEYS, description="Another order of the candidates than by score."
    )
    boosts: list[BoostBody] | None = Field(
        None, max_length=MOST_BOOSTS, description="What changes the scores of the candidates."
    )
    group_by: GroupBody | None = Field(None, description="At most so many hits for each value of a field.")
    facets: list[FacetBody] | None = Field(
        None,
        max_length=MOST_FACETS,
        description="Metadata fields whose values are counted over what was found.",
    )
    fields: list[str] | None = Field(
        None,
        max_length=MOST_FIELDS,
        description=f"Fields to return, at most {MOST_FIELDS}, and metadata by name; all where absent.",
    )
    highlight: bool | HighlightBody | None = Field(
        None, description="Snippets with the query's words marked."
    )
    rerank: bool | RerankBody | None = Field(
        None,
        description="Read the first hits again by the index's re-ranker, or compare tokens in an index without one; `false`: neither.",
    )
    explain: bool | ExplainBody | None = Field(
        None, description="Per word, what the towers read and attended."
    )
    params: ParamsBody = Field(
        default_factory=lambda: _NO_PARAMS
    )  # a plain default is copied for each request
    timeout_ms: int | None = Field(
        None, ge=1, description="Deadline from the request's first byte, at most `max_timeout_ms`."
    )
    allow_partial: bool = Field(
        False,
        description="After the deadline, or without the server of the vectors, answer with what there is, and say so in `degraded`.",
    )
    typos: Literal["auto", "off"] = Field(
        "auto", description="Correct words that the index does not know, where it settles what was meant."
    )
    allow_truncated: bool | None = Field(
        None,
        description="Hits are cut field by field if the response would exceed `max_answer_bytes`; false: it is a 422 instead.",
    )
