"""docs/reference/limits.md lists every limit of the service with its default, as the code has it."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from glow_service.settings import Settings

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"\| [^|]+ \| ([0-9][0-9,.]*)[^|]* \| `([\w.]+)` \| [^|]+ \|")
NAME = re.compile(r"_?(MAX|MOST|LONGEST)_[A-Z_]+")
BOUNDING = {
    "cache_entries",
    "default_timeout_ms",
    "ingest_bytes",
    "rate_burst",
    "rate_limit",
}
BOUNDING |= {"redis_timeout_ms"}
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


def rows() -> dict[str, float]:
    """What sets a bound -> its default."""
    page = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("| ")][1:]
    found = [ROW.fullmatch(line) for line in table]
    assert all(found), [line for line, match in zip(table, found, strict=True) if match is None]
    return {match[2]: float(match[1].replace(",", "")) for match in found if match}


@pytest.mark.parametrize(("name", "shown"), rows().items())
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
    missing = (settings | constants) - rows().keys() - NOT_OF_REQUESTS.keys()
    assert not missing, f"docs/reference/limits.md lacks {sorted(missing)}"
