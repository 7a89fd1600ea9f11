"""Reports as JSON and as Markdown tables for docs/results, and whether targets were reached."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import machine

__all__ = ["emit", "emit_json", "percentiles", "table", "verdict"]


def percentiles(values: NDArray[np.float64]) -> dict[str, float | None]:
    """Median, 99th percentile and maximum, in the unit of the values; None without values."""
    if not len(values):
        return {"p50": None, "p99": None, "max": None}
    p50, p99 = np.quantile(values, [0.5, 0.99])
    return {"p50": round(float(p50), 3), "p99": round(float(p99), 3), "max": round(float(values.max()), 3)}


def verdict(target: str, found: object, holds: bool) -> dict[str, object]:
    """One target and whether it was reached."""
    return {"target": target, "found": found, "holds": bool(holds)}


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers are rounded, None is a dash."""
    lines = [head, ["---"] * len(head), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def emit(
    report: Mapping[str, Any], markdown: str, json_file: Path | None, markdown_file: Path | None
) -> None:
    """Writes a report to the requested files, and its Markdown to stdout.

    Args:
        report: plain values; the machine is added, and `verdicts` are also printed.
        markdown: the table or tables.
        json_file, markdown_file: files to write, if any.
    """
    whole = {"machine": machine(), **report}
    lines = [
        f"- {'holds' if row['holds'] else '**falls short**'}: {row['target']} (found {_cell(row['found'])})"
        for row in report.get("verdicts", ())
    ]
    about = ", ".join(f"{name} {value}" for name, value in whole["machine"].items())
    text = "\n\n".join(part for part in (about, markdown, "\n".join(lines)) if part) + "\n"
    if json_file:
        json_file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    if markdown_file:
        markdown_file.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def emit_json(report: Mapping[str, Any], json_file: Path | None = None) -> None:
    """Writes a report as JSON to stdout, and to a file if requested.

    Args:
        report: plain values; the machine is added.
        json_file: file to write, if any.
    """
    text = json.dumps({"machine": machine(), **report}, indent=2, ensure_ascii=False) + "\n"
    if json_file:
        json_file.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
