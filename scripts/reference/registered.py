"""errors.md and metrics.md: every error type, and every metric of the service."""

import ast
import inspect
from collections.abc import Iterator
from unittest.mock import Mock, patch

from glow.client import ClientError
from glow.commands import outcome
from glow.errors import GlowError
from glow_service.api.problems import problem_of
from glow_service.telemetry import exposition, metrics
from scripts.reference import code, first, page, table

__all__ = ["errors_page", "metrics_page"]

PACKAGES = ("glow", "glow_service", "glow_index_builder", "glow_model_export")
FAMILY = "MetricFamily"


def errors_page() -> str:
    """Every error type that has a code of its own."""
    own, client = [], []
    for kind in _error_types(GlowError):
        rest = (first(kind.__doc__), str(kind.exit_code))
        if issubclass(kind, ClientError):
            client.append((code(kind.__name__), code(kind.code), *rest))
        else:
            problem = problem_of(kind)
            own.append((code(kind.code), str(problem.status), problem.title, *rest))
    return page(
        "Errors",
        "Every error code of GLOW, with its HTTP status and the exit code of a command.",
        table(("code", "status", "title", "meaning", "exit code"), own),
        "## Client",
        table(("error", "code", "meaning", "exit code"), client),
        "## Exit codes",
        " ".join((outcome.__doc__ or "").partition("\n\n")[2].split()),
    )


def _error_types(kind: type[GlowError]) -> Iterator[type[GlowError]]:
    """A type and its subclasses; test modules may have made some, too."""
    if kind.__module__.partition(".")[0] in PACKAGES and "code" in vars(kind):
        yield kind
    for child in sorted(kind.__subclasses__(), key=lambda child: (child.__module__, child.__name__)):
        yield from _error_types(child)


def metrics_page() -> str:
    """Every metric, by the name under which Prometheus finds it."""
    rows = [
        (code(name + "_total" * (kind == "counter")), kind, code(*labels), text)
        for kind, name, text, labels in (*_counted(), *_collected())
    ]
    head = ("metric", "type", "labels", "meaning")
    return page("Metrics", "Every metric that `GET /metrics` returns.", table(head, sorted(rows)))


def _counted() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """What `Metrics` makes, noted as it is made."""
    makers = {name: Mock(wraps=getattr(metrics, name)) for name in ("Counter", "Gauge", "Histogram")}
    with patch.multiple(metrics, **makers):
        metrics.Metrics()
    for kind, maker in makers.items():
        for call in maker.call_args_list:
            name, text, labels = (*call.args, ())[:3]
            yield kind.lower(), name, text, labels


def _collected() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """What is made anew for each response, as the source has it."""
    for node in ast.walk(ast.parse(inspect.getsource(exposition))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith(FAMILY):
            name, text = map(ast.literal_eval, node.args[:2])
            labels = [ast.literal_eval(each.value) for each in node.keywords if each.arg == "labels"]
            yield node.func.id.removesuffix(FAMILY).lower(), name, text, *(labels or [()])
