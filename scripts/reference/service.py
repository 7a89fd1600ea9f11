"""http.md, errors.md and metrics.md: routes, error types and metrics of the service."""

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import glow.commands
from glow.client import ClientError
from glow.errors import GlowError
from glow_service.api.problems import problem_of
from glow_service.api.routes import ROUTES, openapi
from glow_service.app import create_app
from glow_service.settings import Settings
from glow_service.telemetry import metrics
from scripts.reference import code, first, page, table

PACKAGES = ("glow", "glow_service", "glow_index_builder", "glow_model_export")
FAMILY = "MetricFamily"
SHAPES = "#/components/schemas/"
BOUNDS = {
    "minimum": "at least {}", "exclusiveMinimum": "above {}", "maximum": "at most {}",
    "minLength": "length at least {}", "maxLength": "length at most {}", "maxItems": "at most {} items",
}  # fmt: skip
FIELD = ("field", "type", "default", "bounds", "meaning")
Schema = Mapping[str, Any]


def http_page() -> str:
    """Every route with its fields and problems, then the shapes that they use."""
    document = openapi(create_app(Settings(index_root=Path("index")), on_failure=lambda: None))
    shapes: Mapping[str, Schema] = document["components"]["schemas"]
    parts, shown = [], set()
    for route in ROUTES:
        path, *others = (re.sub(r":\w+}", "}", each) for each in route.paths)
        operation = document["paths"][path][route.method.lower()]
        body, answer = (getattr(shape, "__name__", "") for shape in (route.body, route.answer))
        shown |= {body, answer}
        responses = operation["responses"].items()
        told = [(status, each["description"].partition(" with code ")[2]) for status, each in responses]
        problems = [(status, code(*codes.split(", "))) for status, codes in told if codes]
        in_path = [
            (
                code(p["name"]),
                p["schema"]["type"],
                "required" * p.get("required", False),
                "",
                p["description"],
            )
            for p in operation.get("parameters", ())
        ]
        request = table(FIELD, [*in_path, *_rows(body, shapes)])
        response = table(FIELD, _rows(answer, shapes))
        parts += [f"## {route.method} {path}", f"{operation['summary']}."]
        parts += [f"Also {code(*others)}."] if others else []
        parts += [f"**Request.** {_text(body, shapes)}".strip(), request] if request else []
        parts += [f"**Response.** {_text(answer, shapes)}", response] if response else []
        parts.append(table(("status", "problem codes"), problems))
    for name in sorted(shapes.keys() - shown):
        parts += [f"## {name}", _text(name, shapes), table(FIELD, _rows(name, shapes))]
    return page("HTTP", "Every route of the service, with its fields and problems.", *parts)


def _text(name: str, shapes: Mapping[str, Schema]) -> str:
    return first(shapes.get(name, {}).get("description"))


def _rows(name: str, shapes: Mapping[str, Schema]) -> Iterator[tuple[str, ...]]:
    """The fields of a shape; a field without a description takes that of its own shape."""
    for field, schema in shapes.get(name, {}).get("properties", {}).items():
        parts = [schema, *schema.get("anyOf", ())]
        inner = [each.get(key) for each in parts for key in ("items", "additionalProperties")]
        refs = [each["$ref"] for each in (*parts, *inner) if isinstance(each, dict) and "$ref" in each]
        bounds = [words.format(part[key]) for part in parts for key, words in BOUNDS.items() if key in part]
        default = "" if schema.get("default") is None else code(json.dumps(schema["default"]))
        default = "required" if field in shapes[name].get("required", ()) else default
        meaning = schema.get("description") or _text("".join(refs[:1]).removeprefix(SHAPES), shapes)
        yield code(field), _type(schema), default, ", ".join(bounds), first(meaning)


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


def errors_page() -> str:
    """Every error type with its own code, except those of test modules."""
    kinds: list[type[GlowError]] = [GlowError]
    own, client = [], []
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind.__module__.partition(".")[0] in PACKAGES and "code" in vars(kind):
            rest = (first(kind.__doc__), str(kind.exit_code))
            if issubclass(kind, ClientError):
                client.append((code(kind.code), code(kind.__name__), *rest))
            else:
                own.append((code(kind.code), str(problem_of(kind).status), problem_of(kind).title, *rest))
    return page(
        "Errors",
        "Every error code of GLOW, with its HTTP status and the exit code of a command.",
        table(("code", "status", "title", "meaning", "exit code"), sorted(own)),
        "## Client",
        table(("code", "error", "meaning", "exit code"), sorted(client)),
        "## Exit codes",
        (glow.commands.__doc__ or "").rpartition("\n\n")[2].strip(),
    )


def metrics_page() -> str:
    """Every metric: those that `Metrics` creates, and those that the source computes for each response."""
    makers = {name: Mock(wraps=getattr(metrics, name)) for name in ("Counter", "Gauge", "Histogram")}
    with patch.multiple(metrics, **makers):
        metrics.Metrics()
    found = [(kind, (*call.args, ())[:3]) for kind, maker in makers.items() for call in maker.call_args_list]
    for node in ast.walk(ast.parse(inspect.getsource(metrics))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith(FAMILY):
            labels = [each.value for each in node.keywords if each.arg == "labels"] or [ast.Tuple([])]
            values = map(ast.literal_eval, (*node.args[:2], *labels))
            found.append((node.func.id.removesuffix(FAMILY), tuple(values)))
    rows = [(code(n + "_total" * (k == "Counter")), k.lower(), code(*names), t) for k, (n, t, names) in found]
    head = ("metric", "type", "labels", "meaning")
    return page("Metrics", "Every metric that `GET /metrics` returns.", table(head, sorted(rows)))
