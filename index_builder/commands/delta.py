"""The commands that change documents of the live version: upsert, delete, compact."""

import sys
from pathlib import Path
from typing import Any

from glow.commands import command, say, write_report
from glow_index_builder.deltas import (
    CompactOptions,
    DeleteOptions,
    DeltaResult,
    UpsertOptions,
    compact,
    delete,
    upsert,
)
from glow_index_builder.input import skipped_words, written_of
from glow_index_builder.progress import Stages


@command(UpsertOptions)
def upsert_command(options: UpsertOptions) -> None:
    """Adds documents to the live version, or replaces those with the same ids, and publishes the result."""
    _tell(upsert(options, Stages(sys.stderr)), options.json_file)


@command(DeleteOptions)
def delete_command(options: DeleteOptions) -> None:
    """Deletes documents of the live version by their ids, and publishes the result."""
    _tell(delete(options, Stages(sys.stderr)), options.json_file)


@command(CompactOptions)
def compact_command(options: CompactOptions) -> None:
    """Merges the live version's delta into its base, and publishes the result."""
    report = compact(options, Stages(sys.stderr))
    write_report(options.json_file, report)
    if report["status"] == "unchanged":
        say(f"{report['version']} has no delta: nothing to compact")
        return
    counts, index = report["counts"], report["index"]
    say(
        f"{counts['documents']} documents, {index['kind']} index, {report['seconds']['total']:.1f} s\n"
        f"published {report['version']} in {options.index_root}"
    )


def _tell(result: DeltaResult, json: Path | None) -> None:
    write_report(json, result.report)
    counts: dict[str, Any] = result.report["counts"]
    summary = ", ".join(
        f"{counts[name]} {name}"
        for name in ("new", "replaced", "deleted", "unchanged", "unknown", "repeated", "rejects")
        if counts[name]
    )
    say(f"{summary or 'nothing'}; {counts['documents']} documents")
    if result.rejects_file:
        say(f"rejected lines: {written_of(counts['rejects'])} {result.rejects_file}")
    if result.report.get("skipped"):
        say(skipped_words(result.report["skipped"]))
    if result.warning:
        say(result.warning)
    if result.version is None:
        say(f"nothing to change: {result.report['version']} stays")
    else:
        say(f"published {result.version} in {result.report['seconds']['total']:.1f} s")
