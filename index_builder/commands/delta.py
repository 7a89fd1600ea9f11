"""The commands on documents of the live version: upsert, delete, sync, compact, export-documents."""

import gzip
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import typer

from glow.artifact import IndexRoot, disk_error
from glow.commands import (
    STDOUT,
    IndexRootOptions,
    JsonOptions,
    command,
    counted,
    option,
    say,
    write_line,
    write_report,
)
from glow.errors import BusyError, ConfigError, GlowError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow_index_builder.building.report import left_out_words
from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.plan import CompactOptions, DeleteOptions, UpsertOptions
from glow_index_builder.deltas.sync import SyncOptions, sync
from glow_index_builder.deltas.upsert import DeltaResult, delete, upsert
from glow_index_builder.input.source import open_sources
from glow_index_builder.progress import Stages


@command(UpsertOptions)
def upsert_command(options: UpsertOptions) -> None:
    """Adds documents to the live version, or replaces those with the same ids, and publishes the result."""
    _tell(upsert(options, Stages(sys.stderr)), options.json_file)


@command(DeleteOptions)
def delete_command(options: DeleteOptions) -> None:
    """Deletes documents of the live version by ids or a filter, and publishes the result."""
    _tell(delete(options, Stages(sys.stderr)), options.json_file)


POLL_S = 1.5
"""Seconds between looks at a watched input; also how long it has to be quiet."""
POLL_TIMES = 5
"""A look at many files takes at most one in so many parts of the time."""


@command(SyncOptions)
def sync_command(options: SyncOptions) -> None:
    """Makes the index equal to a file or directory: adds, replaces and deletes documents, as one version."""
    done = _look(options) if options.watch else None
    confirm = typer.confirm if sys.stdin.isatty() and sys.stderr.isatty() else None
    _tell(sync(options, Stages(sys.stderr), confirm), options.json_file)
    try:
        while options.watch:
            done = _after_change(options, done)
            try:
                _tell(sync(options, Stages(sys.stderr)), options.json_file)
            except BusyError as error:  # temporary
                say(f"waits: {error}")
                done = None
            except GlowError as error:
                say(f"error ({error.code}): {error}; waits for the next change")
    except KeyboardInterrupt:
        say("stopped")


def _after_change(options: SyncOptions, done: object) -> object:
    """Waits until the input differs from a look, and is quiet; returns the last look."""
    before, took = done, 0.0
    while True:
        time.sleep(max(POLL_S, POLL_TIMES * took))
        started = time.monotonic()
        now, took = _look(options), time.monotonic() - started
        if now == before != done:
            return now
        before = now


def _look(options: SyncOptions) -> object:
    """Names, sizes and times of the input's files; why they cannot be listed, if so."""
    try:
        return [(source.name, source.identity) for source in open_sources(options.source, options.exclude)]
    except (GlowError, OSError) as error:
        return str(error)


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
        f"{counted(counts['documents'], 'document')}, {index['kind']} index, {report['seconds']['total']:.1f} s\n"
        f"published {report['version']} in {options.index_root}"
    )


class ExportOptions(JsonOptions, IndexRootOptions):
    """What to export."""

    out: Path = option(
        ..., "JSON Lines to write, compressed if it ends in .gz; - is standard output.", metavar="FILE"
    )
    version: str | None = option(None, "Version name; default: the live one.")


@command(ExportOptions)
def export_command(options: ExportOptions) -> None:
    """Writes all documents of a version as JSON Lines, which `glow build` reads."""
    if options.out == STDOUT == options.json_file:
        raise ConfigError("standard output takes one file: give --out or --json another")
    root = IndexRoot(options.index_root)
    version = options.version or root.current()
    stored = Index.open(root.folder(version))[STORED_FIELDS]
    try:
        with ExitStack() as stack:
            file: Any = sys.stdout.buffer
            if options.out != STDOUT:
                opener: Any = gzip.open if options.out.suffix == ".gz" else open
                file = stack.enter_context(opener(options.out, "wb"))
            for each in stored.scan():
                file.write(orjson.dumps({"_id": each.id, **each.fields, **each.metadata}) + b"\n")
            file.flush()
    except OSError as error:
        raise disk_error(options.out, error) from error
    write_report(options.json_file, {"status": "exported", "version": version, "documents": stored.count})
    summary = f"{counted(stored.count, 'document')} of {version}"
    say(summary) if options.out != STDOUT else write_line(sys.stderr, summary)


SUMMARY = ("new", "replaced", "changed", "deleted", "unchanged", "kept", "unknown", "repeated", "rejects")


def _tell(result: DeltaResult, json: Path | None) -> None:
    write_report(json, result.report)
    counts: dict[str, Any] = result.report["counts"]
    summary = ", ".join(f"{counts[name]} {name}" for name in SUMMARY if counts.get(name))
    say(f"{summary or 'nothing'}; {counted(counts['documents'], 'document')}")
    if reused := counts.get("reused"):
        say(f"encoded {counts['encoded']}, reused the vectors of {reused}")
    for line in left_out_words(result.report, result.rejects_file):
        say(line)
    if result.warning:
        say(result.warning)
    if result.version is None:
        say(f"nothing to change: {result.report['version']} stays")
    else:
        say(f"published {result.version} in {result.report['seconds']['total']:.1f} s")
