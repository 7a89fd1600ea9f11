"""Describes the machine, reports as JSON and as Markdown tables for docs/results, and says whether targets were reached."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def machine() -> dict[str, str]:
    """CPU model, cores, memory, Python and commit, as plain strings."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        flags = next((line for line in info.read_text().splitlines() if line.startswith("flags")), "")
        vectors = [name for name in ("avx2", "avx512_vnni", "amx_int8", "amx_bf16") if name in flags.split()]
        cpu = f"{names[0] if names else cpu} ({', '.join(vectors)})"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "python": platform.python_version(),
        "commit": git.stdout.strip(),
    }


def percentiles(values: NDArray[np.float64]) -> dict[str, float | None]:
    """Median, 99th percentile and maximum, in the unit of the values; None without values."""
    if not len(values):
        return {"p50": None, "p99": None, "max": None}
    p50, p99 = np.quantile(values, [0.5, 0.99])
    return {"p50": round(float(p50), 3), "p99": round(float(p99), 3), "max": round(float(values.max()), 3)}


def verdict(target: str, found: object, holds: bool) -> dict[str, object]:
    """One target and whether it was reached."""
    return {"target": target, "found": found, "holds": bool(holds)}


def say(text: str) -> None:
    """Prints a line immediately."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def status_bytes(field: str) -> int:
    """A kB field of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


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
    """Writes a report to the requested files, and its Markdown to stdout."""
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
    """Writes a report as JSON to stdout, and to a file if requested."""
    text = json.dumps({"machine": machine(), **report}, indent=2, ensure_ascii=False) + "\n"
    if json_file:
        json_file.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
