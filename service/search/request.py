"""The members of a search, in the body or the address of a request, and the faults of what is not one."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from glow.errors import Fault
from glow.search import MAX_DEPTH, Match, Retriever, Syntax
from glow_service.errors import RequestError

# Pydantic checks every member of a list before it reports errors, so lists need limits.
MOST_FIELDS = 64
MOST_DIMENSIONS = 8_192
MOST_SORT_KEYS = MOST_BOOSTS = 8
MOST_FACETS = 16
MOST_FACET_VALUES = 100


class Shape(BaseModel):
    """A JSON object without unknown members, each of exactly the declared type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ParamsBody(Shape):
    """How thoroughly to search. Parameters of other index kinds have no effect."""

    ef_search: int | None = Field(None, ge=1, le=10_000, description="Candidates of an `hnsw` index.")
    nprobe: int | None = Field(
        None, ge=1, le=65_536, description="Inverted lists that an `ivf-*` index searches."
    )
    exact: bool = Field(
        False, description="Compare with every stored vector; `ivf-pq` stores them in 8 bits."
    )


_NO_PARAMS = ParamsBody(ef_search=None, nprobe=None, exact=False)


class FusionBody(Shape):
    """How `hybrid` fuses rankings. Defaults are the index's own."""

    method: Literal["convex", "rrf"] | None = Field(
        None, description="`convex`: weighted mean of normalized scores; `rrf`: reciprocal ranks."
    )
    k: int | None = Field(None, ge=0, le=10_000, description="The constant of `rrf`.")
    weights: dict[Literal["dense", "lexical"], float] | None = Field(
        None, description="Weight of each retriever, at least 0; not all 0."
    )


class FacetBody(Shape):
    """A metadata field to count."""

    field: str = Field(description="A metadata field of the index.")
    limit: int = Field(10, ge=1, le=MOST_FACET_VALUES, description="Most values to return.")


class HighlightBody(Shape):
    """Fields and sizes of snippets."""

    fields: list[str] | None = Field(
        None,
        max_length=MOST_FIELDS,
        description="Fields with snippets; default: the returned ones and the body.",
    )
    fragments: int = Field(2, ge=1, le=10, description="Most snippets per field.")
    fragment_chars: int = Field(200, ge=40, le=2_000, description="Most characters of a snippet.")


class ExplainBody(Shape):
    """What to explain in addition to weights and attention."""

    leave_one_out: bool = Field(False, description="Explain how the cosine changes without each query word.")


class LikeBody(Shape):
    """A document of the index."""

    id: str = Field(min_length=1, max_length=1_024, description="The document's id.")


class SortBody(Shape):
    """A sort key."""

    field: str = Field(description="A metadata field, or `score`.")
    order: Literal["asc", "desc"] = Field(
        "asc", description="Order; documents without a value come last in both."
    )


def _short(kind: type[Shape], most: int, long: Callable[[str], dict[str, str]]) -> BeforeValidator:
    """Reads a list in which texts stand for objects, or one of its items."""

    def read(value: Any) -> list[Any]:
        items = value if isinstance(value, list) else [value]
        return [long(each) if isinstance(each, str) else each for each in items]

    item: Any = str | kind
    return BeforeValidator(read, json_schema_input_type=item | Annotated[list[item], Field(max_length=most)])


def _sort_key(text: str) -> dict[str, str]:
    is_descending = text.startswith("-") or text == "score"
    return {"field": text.removeprefix("-"), "order": "desc" if is_descending else "asc"}


Facets = Annotated[
    list[FacetBody],
    Field(max_length=MOST_FACETS),
    _short(FacetBody, MOST_FACETS, lambda name: {"field": name}),
]
SortKeys = Annotated[
    list[SortBody], Field(max_length=MOST_SORT_KEYS), _short(SortBody, MOST_SORT_KEYS, _sort_key)
]


class RecencyBody(Shape):
    """Boost of recent documents."""

    field: str = Field(description="A metadata field with dates.")
    half_life: str = Field(
        "30d", description="Age at which half of the boost remains: a number and s, m, h, d, w, M or y."
    )
    weight: float = Field(
        0.5, gt=0, le=100, description="Boost of a document dated now; 0.5 raises its score by half."
    )


class BoostBody(Shape):
    """A filter with a factor, or a recency boost."""

    filter: dict[str, Any] | None = Field(None, description="Documents to boost.")
    factor: float = Field(2.0, gt=0, le=100, description="Factor of their score; below 1, they rank lower.")
    recency: RecencyBody | None = None


class GroupBody(Shape):
    """Most hits per value of a metadata field."""

    field: str = Field(description="A metadata field.")
    size: int = Field(1, ge=1, le=100, description="Most hits per value.")


class RerankBody(Shape):
    """How to re-rank the first hits."""

    depth: int = Field(50, ge=1, le=MAX_DEPTH, description="Number of hits to re-rank.")


class SearchRequest(Shape):
    """A search. It needs `query`, `vector`, `like` or `filter`."""

    query: str | None = Field(
        None, description="Text to search for, at most `max_query_chars`; optional with `filter`."
    )
    vector: list[float] | None = Field(
        None,
        max_length=MOST_DIMENSIONS,
        description="Vector to search for in place of `query`, with the index's dimensions.",
    )
    like: LikeBody | None = Field(
        None, description="Document whose similar documents to find, in place of `query`."
    )
    top_k: int = Field(10, ge=1, description="Hits to return, at most `max_top_k`.")
    offset: int = Field(0, ge=0, description="Hits to skip.")
    candidates: int | None = Field(
        None, ge=1, description="Hits to gather, from `offset` + `top_k` to 1,000."
    )
    retriever: Retriever | None = Field(
        None,
        description="How to find candidates; default: `hybrid` if the index has a lexical part, otherwise `dense`.",
    )
    fusion: FusionBody | None = Field(None, description="Fusion of a `hybrid` search.")
    filter: dict[str, Any] | None = Field(None, description="Restricts the documents; see docs/filters.md.")
    min_score: float | None = Field(None, description="Lowest score of a hit.")
    sort: SortKeys | None = Field(
        None, description="Sort keys, such as `-price` for the highest first; default: by score."
    )
    boosts: list[BoostBody] | None = Field(
        None, max_length=MOST_BOOSTS, description="Boosts of the candidates' scores."
    )
    group_by: GroupBody | None = Field(None, description="Limits the hits per value of a metadata field.")
    facets: Facets | None = Field(None, description="Metadata fields to count over the candidates.")
    fields: list[str] | None = Field(
        None,
        max_length=MOST_FIELDS,
        description=f"Fields and metadata to return, at most {MOST_FIELDS}; default: all.",
    )
    highlight: bool | HighlightBody | None = Field(
        None, description="Return snippets with marked query words."
    )
    rerank: bool | RerankBody | None = Field(
        None, description="Re-rank the first hits with the index's re-ranker."
    )
    vectors: bool = Field(False, description="Return the stored vector of each hit; of passages, their mean.")
    explain: bool | ExplainBody | None = Field(None, description="Return an explanation of each hit.")
    # A plain default is copied for each request.
    params: ParamsBody = Field(default_factory=lambda: _NO_PARAMS)
    timeout_ms: int | None = Field(
        None,
        ge=1,
        description="Deadline in milliseconds from the request's first byte, at most `max_timeout_ms`.",
    )
    allow_partial: bool = Field(
        False,
        description="Return partial results after the deadline or without the vector store; `degraded` says what is missing.",
    )
    match: Match = Field(
        "auto",
        description="Which documents match: with all words, with any, or `auto`: all, or most if too few hold all.",
    )
    syntax: Syntax = Field(
        "auto", description='`auto` reads `"a phrase"`, `-word` and `field:word`; `plain` reads words alone.'
    )
    prefix: bool = Field(False, description="Whether the last word is the start of one.")
    typos: Literal["auto", "off"] = Field(
        "auto", description="Correction of words one edit away from an indexed word, and of hyphens in codes."
    )
    allow_truncated: bool | None = Field(
        None, description="Cut hits if the response would exceed 8 MiB; `false`: 422 instead."
    )


# The same members in an address: `?q=desk+lamp&k=5&sort=-price&filter={"brand":"Acme"}`.

MAX_PARAMETERS = 100
SHORT_NAMES = {"q": "query", "k": "top_k"}


def members_of_address(query: bytes) -> dict[str, Any]:
    """The members of a search from the part of an address behind `?`: lists have commas, the rest is as in JSON."""
    members: dict[str, Any] = {}
    try:
        pairs = parse_qsl(query.decode(), True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise fault("", f"expected at most {MAX_PARAMETERS} parameters, in UTF-8") from None
    for key, text in pairs:
        name = SHORT_NAMES.get(key, key)
        if name in members:
            raise fault(_pointer((name,)), "found twice; give several values with commas")
        members[name] = _value(name, text)
    return members


def _value(name: str, text: str) -> Any:
    is_json = text.startswith(("{", "["))
    if name in _LISTS and not is_json:
        return [part.strip() for part in text.split(",") if part.strip()]
    if name not in _LISTS and (name not in _MEMBERS or _MEMBERS[name].get("type") == "string"):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if is_json:
            raise fault(f"/{name}", f"not JSON: {error.msg} at character {error.pos}") from None
        return text  # its check says what was expected


def parameters_of(shape: type[Shape]) -> list[dict[str, Any]]:
    """The members of a shape as parameters of an address, for OpenAPI: plain values as they are, others as texts."""
    schema, short = shape.model_json_schema(), {name: short for short, name in SHORT_NAMES.items()}
    shown = []
    for name, member in schema["properties"].items():
        plain = _plain_schema(member)
        form = " Names with commas." if name in _LISTS else "" if plain else " As JSON."
        parameter = {"name": short.get(name, name), "in": "query", "schema": plain or {"type": "string"}}
        required = {"required": True} if name in schema.get("required", ()) else {}
        shown.append(parameter | required | {"description": (member.get("description", "") + form).strip()})
    return shown


def _plain_schema(member: dict[str, Any]) -> dict[str, Any]:
    """The schema of a member that has plain values; empty for another."""
    for each in member.get("anyOf", [member]):
        if each.get("type") in ("string", "integer", "number", "boolean"):
            return {
                key: each[key] for key in ("type", "enum", "minimum", "maximum", "default") if key in each
            }
    return {}


_LISTS = ("fields", "facets", "sort")
_MEMBERS = {
    name: _plain_schema(each) for name, each in SearchRequest.model_json_schema()["properties"].items()
}
"""Schemas of the members of a search, as far as they have plain values."""


# Faults: pydantic's errors, with JSON pointers to places in the body.

MAX_FAULTS = 20
_KINDS = frozenset(("bool", "int", "float", "str", "none"))
_SHORT = reprlib.Repr()
"""Shortens the representation of found values."""
_SHORT.maxstring = _SHORT.maxother = 80


_S = TypeVar("_S", bound=Shape)


def parsed(shape: type[_S], value: Any) -> _S:
    """A JSON value of a shape, or an error with all its faults."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise faults_of(error.errors(include_url=False, include_context=False), value, shape) from error


def faults_of(
    errors: Sequence[Mapping[str, Any]], body: Any, shape: type[BaseModel] | None = None
) -> RequestError:
    """The `RequestError` of pydantic's errors; its pointers refer to places in the body, which should have the shape."""
    faults: dict[str, Fault] = {}
    for error in errors:
        pointer, is_inner = _place(error["loc"], body)
        # If a value may have several types, the error inside one of them is the most useful.
        if is_inner or pointer not in faults:
            known = shape if len(faults) < MAX_FAULTS else None  # comparing names takes time
            faults.setdefault(pointer, Fault(pointer, _detail(error, known)))
    outer = {pointer[:at] for pointer in faults for at, sign in enumerate(pointer) if sign == "/"}
    listed = [fault for pointer, fault in faults.items() if pointer not in outer][:MAX_FAULTS]
    return refusal(listed)


def _place(location: tuple[int | str, ...], body: Any) -> tuple[str, bool]:
    """The JSON pointer of pydantic's location, without names of types and keys, and whether it is inside the body."""
    parts: list[int | str] = []
    value, is_inner = body, False
    for at, part in enumerate(location):
        is_member = isinstance(value, Mapping) and part in value
        is_item = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if is_member or is_item:
            value = value[part]
            parts.append(part)
            is_inner = True
        elif at == len(location) - 1 and isinstance(value, Mapping) and not _is_kind(part):
            parts.append(part)
    return _pointer(tuple(parts)), is_inner


def _is_kind(part: int | str) -> bool:
    """Whether a part of pydantic's location is the name of a type or a key, not of a member."""
    text = str(part)
    return text in _KINDS or text.startswith(("function-", "[", "list[", "dict[")) or text.endswith("Body")


def _pointer(location: tuple[int | str, ...]) -> str:
    return "".join("/" + str(part)[:80].replace("~", "~0").replace("/", "~1") for part in location)


def _detail(error: Mapping[str, Any], shape: type[BaseModel] | None) -> str:
    if error["type"] == "missing":
        return "required, but missing"
    if error["type"] == "extra_forbidden":
        name = str(error["loc"][-1])
        near = _nearest(name, _known(shape, error["loc"][:-1]))
        hint = f"did you mean {near!r}?" if near else "/openapi.json lists the known ones"
        return f"unknown field {name!r:.80}; {hint}"
    if error["type"] in ("model_type", "model_attributes_type"):
        return f"expected an object, found {_SHORT.repr(error['input']):.80}"
    return f"{error['msg']}, found {_SHORT.repr(error['input']):.80}"


def _known(shape: Any, location: Sequence[int | str]) -> Sequence[str]:
    """The members of the object at a location of pydantic's."""
    for part in location:
        if shape is not None and part in shape.model_fields:
            shape = _shape_in(shape.model_fields[part].annotation)
    return () if shape is None else tuple(shape.model_fields)


def _shape_in(annotation: Any) -> type[Shape] | None:
    if isinstance(annotation, type) and issubclass(annotation, Shape):
        return annotation
    return next((found for each in get_args(annotation) if (found := _shape_in(each))), None)


_ALIASES = {
    "query": "q text search", "filter": "where filters filter_by", "sort": "order order_by sort_by",
    "top_k": "k n limit size count", "limit": "k n size count", "offset": "from skip start", "facets": "aggs facet_by",
}  # fmt: skip
"""Members, and their names in other search engines."""


def _nearest(name: str, known: Sequence[str]) -> str | None:
    meant = [each for each in known if name.lower() in _ALIASES.get(each, "").split()]
    return next(iter(meant or get_close_matches(name[:40].lower(), known, 1, 0.7)), None)


def refusal(faults: Sequence[Fault]) -> RequestError:
    """The error of several faults of a request."""
    sentence = "; ".join(f"{fault.pointer or 'body'}: {fault.detail}" for fault in faults[:3]) + (
        f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    )
    return RequestError(sentence, faults)


def fault(pointer: str, detail: str) -> RequestError:
    """The error of one fault."""
    return refusal([Fault(pointer, detail)])
