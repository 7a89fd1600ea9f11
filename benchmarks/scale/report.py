"""Measurements of each kind, as records in a file and as Markdown."""

import json
from pathlib import Path
from typing import Any

from benchmarks.scale.processes import MIB
from benchmarks.scale.vectors import Made

__all__ = ["Record", "finished", "tables"]

Record = dict[str, Any]
BAR_RECALL = 0.95
BAR_MS = 1.5


def finished(results: Path, key: str) -> list[Record]:
    """The stored records of the same vectors."""
    if not results.exists():
        return []
    records = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return [record for record in records if record["key"] == key]


def tables(made: Made, records: list[Record]) -> str:
    """The measurements as Markdown."""
    lines = [
        f"{made.count:,} vectors of {made.dimensions} dimensions by {made.model}, from {'; '.join(made.sources)}.",
        f"Noise ({made.shape}) of length {made.noise:.3f}; 10th neighbour's / mean distance {made.made:.4f}, "
        f"of the real set {made.real:.4f} ({100 * (made.made / made.real - 1):+.1f} %); local "
        f"intrinsic dimensions around queries {made.made_local:.0f}, of the real set {made.real_local:.0f}.",
        "",
        "| kind | build s | CPU s | threads | peak MiB | file MiB | bytes a vector | open s | served MiB own + mapped |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        built = record["build"]
        lines.append(
            f"| `{record['kind']}` | {built['seconds']:,} | {built['cpu_s']:,} | {built['threads']} "
            f"| {built['peak_mib']:,} | {built['file_bytes'] / MIB:,.0f} | {built['bytes_per_vector']:,.0f} "
            f"| {record['opened_s']} | {record['own_mib']:,} + {record['mapped_mib']:,} |"
        )
    lines += [
        "",
        "| kind | setting | recall@10 | p50 ms | p99 ms | CPU p50 ms | bar |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in records:
        for row in record["search"]:
            holds = row["recall"] >= BAR_RECALL and row["p50_ms"] <= BAR_MS
            lines.append(
                f"| `{record['kind']}` | `{row['setting']}` | {row['recall']:.4f} | {row['p50_ms']:.3f} "
                f"| {row['p99_ms']:.3f} | {row['cpu_p50_ms']:.3f} | {'holds' if holds else ''} |"
            )
    return "\n".join(lines) + "\n"
