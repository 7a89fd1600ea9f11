"""An index of documents as long as a builder takes, and what can be asked of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.attacks.harness import ROOT
from tests.attacks.requests import large_answer_batch

__all__ = ["large_index", "worst_requests"]

DOCUMENTS, CHARS = 60, 950_000


def large_index(beside: Path) -> Path:
    """Builds the index beside another one, unless it is there."""
    root = beside.parent / f"{beside.name}-large"
    if (root / "CURRENT").exists():
        return root
    source = root.with_suffix(".jsonl")
    with source.open("w", encoding="utf-8") as lines:
        for number in range(DOCUMENTS):
            text = (f"Bees of hive {number} find home. " * (CHARS // 30))[:CHARS]
            lines.write(json.dumps({"_id": f"bee{number}", "title": f"Hive {number}", "text": text}) + "\n")
    command = [sys.executable, "-m", "glow", "build", "--input", str(source), "--index-root", str(root)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    source.unlink()
    return root


def worst_requests() -> list[tuple[str, str, dict[str, Any]]]:
    """Name, path and body of each."""
    whole = {"query": "bees", "top_k": 60}
    marked = {**whole, "fields": [], "highlight": {"fragments": 10, "fragment_chars": 2_000}}
    return [
        ("1 search, top_k 60", "/search", whole),
        ("the same, cut", "/search", {**whole, "allow_truncated": True}),
        ("top_k 60, fields []", "/search", {**whole, "fields": []}),
        ("top_k 60, longest snippets", "/search", marked),
        ("explain 20", "/search", {"query": "bees", "top_k": 20, "explain": True, "timeout_ms": 30_000}),
        ("batch of 16", "/search/batch", large_answer_batch(16)),
        ("batch of 64, cut", "/search/batch", _cut(64)),
        ("batch of 64, top_k 8", "/search/batch", large_answer_batch(64, 8)),
    ]


def _cut(searches: int) -> dict[str, Any]:
    body = large_answer_batch(searches)
    for search in body["searches"]:
        search["allow_truncated"] = True
        search["timeout_ms"] = 30_000
    return body
