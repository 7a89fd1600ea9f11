"""http.md: every route of the service, from its OpenAPI document."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from glow_service.api.routes import openapi
from glow_service.app import create_app
from glow_service.settings import Settings
from scripts.reference import code, first, page, table

__all__ = ["http_page"]

SHAPES = "#/components/schemas/"
BOUNDS = {
    "minimum": "at least {}", "exclusiveMinimum": "above {}", "maximum": "at most {}",
    "minLength": "at least {} characters", "maxLength": "at most {} characters", "maxItems": "at most {} items",
}  # fmt: skip
FIELD = ("field", "type", "default", "bounds", "meaning")
Schema = Mapping[str, Any]


def http_page() -> str:
    """Every route with its fields and problems, then the shapes inside them."""
    document = openapi(create_app(Settings(index_root=Path("index")), on_failure=lambda: None))
    shapes: Mapping[str, Schema] = document["components"]["schemas"]
    routes: dict[str, tuple[str, list[str], Schema]] = {}
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            name = route["operationId"].removesuffix("_v1")
            routes.setdefault(name, (method.upper(), [], route))[1].append(path)
    parts, shown = [], set()
    for method, paths, route in routes.values():
        body, answer = _shape_of(route.get("requestBody", {})), _shape_of(route["responses"]["200"])
        shown |= {body, answer}
        codes = {s: each["description"].partition(" with code ")[2] for s, each in route["responses"].items()}
        problems = [(status, code(*names.split(", "))) for status, names in codes.items() if names]
        parameters = [
            _row(each["name"], each["schema"], shapes, True) for each in route.get("parameters", ())
        ]
        request = table(FIELD, [*parameters, *_rows(body, shapes)])
        response = table(FIELD, _rows(answer, shapes))
        parts += [f"## {method} {paths[0]}", f"{route['summary']}."]
        parts += [
            f"Also {code(*paths[1:])}." if paths[1:] else "",
            request and f"**Request.** {_text(body, shapes)}".strip(), request,
            response and f"**Response.** {_text(answer, shapes)}", response,
            table(("status", "problem codes"), problems),
        ]  # fmt: skip
    for name in sorted(shapes.keys() - shown):
        parts += [f"## {name}", _text(name, shapes), table(FIELD, _rows(name, shapes))]
    return page("HTTP", "Every route of the service, with its fields and problems.", *parts)


def _shape_of(content: Schema) -> str:
    schema = content.get("content", {}).get("application/json", {}).get("schema", {})
    return str(schema.get("$ref", "")).removeprefix(SHAPES)


def _text(name: str, shapes: Mapping[str, Schema]) -> str:
    return first(shapes.get(name, {}).get("description"))


def _rows(name: str, shapes: Mapping[str, Schema]) -> Iterator[tuple[str, ...]]:
    shape = shapes.get(name, {})
    for field, schema in shape.get("properties", {}).items():
        yield _row(field, schema, shapes, field in shape.get("required", ()))


def _row(name: str, schema: Schema, shapes: Mapping[str, Schema], is_required: bool) -> tuple[str, ...]:
    """A field; one without a description has that of its shape."""
    parts = [schema, *schema.get("anyOf", ())]
    default = schema.get("default")
    inner = [each for part in parts for each in (part, part.get("items"), part.get("additionalProperties"))]
    named = [each["$ref"].removeprefix(SHAPES) for each in inner if isinstance(each, dict) and "$ref" in each]
    bounds = [words.format(part[key]) for part in parts for key, words in BOUNDS.items() if key in part]
    shown = "required" if is_required else "" if default is None else code(json.dumps(default))
    meaning = first(schema.get("description")) or "".join(_text(each, shapes) for each in named[:1])
    return code(name), _type(schema), shown, ", ".join(bounds), meaning


def _type(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"] if part.get("type") != "null")
    if name := schema.get("$ref", "").removeprefix(SHAPES):
        return f"[{name}](#{name.lower()})"
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return code(*map(json.dumps, values))
    inner = schema.get("items", schema.get("additionalProperties"))
    kind = schema.get("type", "any").replace("array", "list")
    return f"{kind} of {_type(inner)}" if isinstance(inner, dict) else kind
