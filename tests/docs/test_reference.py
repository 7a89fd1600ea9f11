"""The pages of docs/reference are what the code says, and the code says something of every row; limits.md has every limit."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from glow_service.settings import Settings
from scripts.reference.__main__ import PAGES, ROOT

MADE = {path.name: make for path, make in PAGES.items()}
CELL = re.compile(r"(?<!\\)\|")
SILENT = {"commands.json"}
"""Not a table of meanings."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_code_says(path: Path) -> None:
    assert path.is_file() and path.read_text(encoding="utf-8") == PAGES[path](), (
        f"{path.relative_to(ROOT)} differs from the code; run: python -m scripts.reference"
    )


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in CELL.split(line)[1:-1]]


@pytest.mark.parametrize("name", sorted(MADE.keys() - SILENT))
def test_every_row_has_a_meaning(name: str) -> None:
    silent, rows, column = [], 0, -1
    for line in MADE[name]().splitlines():
        if not line.startswith("|"):
            column = -1
        elif "meaning" in cells(line):
            column = cells(line).index("meaning")
        elif column >= 0 and "---" not in line:
            rows += 1
            silent += [] if len(cells(line)[column]) > 3 else [line]
    assert rows > 10
    assert not silent, "\n" + "\n".join(silent)


def test_every_route_has_a_summary() -> None:
    routes = re.findall(r"^## (?:GET|POST|DELETE) (\S+)\n\n(.*)$", MADE["http.md"](), re.MULTILINE)
    assert len(routes) > 10
    assert not [path for path, summary in routes if len(summary) < 10]


def test_every_error_has_a_status_and_an_exit_code() -> None:
    rows = [cells(line) for line in MADE["errors.md"]().partition("## Client")[0].splitlines() if "`" in line]
    codes = [row for row in rows if len(row) == 5]
    assert len(codes) > 20
    assert not [
        row for row in codes if not (re.fullmatch("[45]..", row[1]) and re.fullmatch("[1-6]", row[4]))
    ]


LIMIT = re.compile(r"\| [^|]+ \| ([0-9][0-9,.]*)[^|]* \| `([\w.]+)` \| [^|]+ \|")
NAME = re.compile(r"_?(MAX|MOST|LONGEST)_[A-Z_]+")
BOUNDING = {
    *("cache_entries", "default_timeout_ms", "ingest_bytes", "rate_burst", "rate_limit", "redis_timeout_ms")
}
"""Settings that bound something, beside those that are called so."""
NOT_OF_REQUESTS = {
    "glow_service.access._MAX_CLIENT_CHARS": "part of an address that names a client",
    "glow_service.access.MAX_DEPTH": "of a file that the operator writes",
    "glow_service.api.operations.LONGEST_S": "of the operator's own requests",
    "glow_service.redis.MAX_VALUE_BYTES": "the same as the bound of a cached response",
    "glow_service.redis.MAX_WAITING_BYTES": "values that are computed anew if they are not cached",
    "glow_service.commands.serve.LONGEST_LOAD_S": "of a start",
    "glow_service.live.workers.LONGEST_S": "of the service's own probes",
    "glow_service.live.swap.MAX_REASON_CHARACTERS": "of a message",
    "glow_service.search.request.MAX_FAULTS": "of a message",
    "glow_service.settings.MOST_BATCH_BYTES": "of settings together",
    "glow_service.settings.MOST_PROCESSES": "of a default",
}


def limits() -> dict[str, float]:
    """What sets a limit -> its default."""
    page = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("| ")][1:]
    found = [LIMIT.fullmatch(line) for line in table]
    assert all(found), [line for line, match in zip(table, found, strict=True) if match is None]
    return {match[2]: float(match[1].replace(",", "")) for match in found if match}


@pytest.mark.parametrize(("name", "shown"), limits().items())
def test_a_bound_is_what_the_page_says(name: str, shown: float) -> None:
    if "." not in name:
        assert float(Settings.model_fields[name].default) == shown
        return
    module, _, constant = name.rpartition(".")
    assert float(getattr(importlib.import_module(module), constant)) == shown


def test_every_bound_is_on_the_page() -> None:
    settings = {name for name in Settings.model_fields if name.startswith("max_")} | BOUNDING
    assert settings <= Settings.model_fields.keys()
    constants = set()
    for path in (ROOT / "service").rglob("*.py"):
        module = ".".join(("glow_service", *path.relative_to(ROOT / "service").with_suffix("").parts))
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            constants |= {
                f"{module}.{each.id}"
                for each in targets
                if isinstance(each, ast.Name) and NAME.fullmatch(each.id)
            }
    assert constants >= NOT_OF_REQUESTS.keys(), "no such constant any more"
    missing = (settings | constants) - limits().keys() - NOT_OF_REQUESTS.keys()
    assert not missing, f"docs/reference/limits.md lacks {sorted(missing)}"
