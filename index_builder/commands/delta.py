"""The commands that change a few documents of the live version: upsert, delete, compact."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from glow.artifact import default_model
from glow.errors import ArtifactNotFoundError
from glow_index_builder.building import write_json
from glow_index_builder.commands.reporting import Json, Output, all_cores, reporting, say
from glow_index_builder.deltas import CompactOptions, DeltaOptions, DeltaResult, compact, delete, upsert
from glow_index_builder.options import parse_rename
from glow_index_builder.progress import Stages

__all__ = ["compact_command", "delete_command", "upsert_command"]

Threads = Annotated[int | None, typer.Option(min=1, help="Default: all cores.")]
MaxLineBytes = Annotated[int, typer.Option(min=1, help="Longest line that is read.")]
MaxRejectShare = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of bad lines that is refused.")]
MaxDeltaShare = Annotated[
    float, typer.Option(min=0.0, help="Largest delta as a share of the base, from 1,000 changes on.")
]
MaxDeltaDocuments = Annotated[
    int, typer.Option(min=1, help="Largest delta in documents and tombstones together.")
]
Wait = Annotated[float, typer.Option(min=0.0, help="Seconds to wait for another command on the root.")]


def upsert_command(
    source: Annotated[str, typer.Option("--input", help="FILE.jsonl, a folder, or - for standard input.")],
    output: Output,
    model: Annotated[
        Path | None, typer.Option(help="Model that built the index; default: what models/DEFAULT names.")
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option("--map", help="FOUND=WANTED; default: as the index was built with.")
    ] = None,
    threads: Threads = None,
    max_line_bytes: MaxLineBytes = 1_000_000,
    max_reject_share: MaxRejectShare = 0.2,
    max_delta_share: MaxDeltaShare = 0.1,
    max_delta_documents: MaxDeltaDocuments = 20_000,
    wait: Wait = 60.0,
    json: Json = None,
) -> None:
    """Adds documents to the live version, or replaces those with the same ids, and publishes the result."""
    with reporting(json):
        options = DeltaOptions(
            output=output,
            source=source,
            model=model or default_model(),
            rename=parse_rename(rename) if rename else None,
            threads=threads or all_cores(),
            max_line_bytes=max_line_bytes,
            max_reject_share=max_reject_share,
            max_share=max_delta_share,
            max_documents=max_delta_documents,
            wait_s=wait,
        )
        _tell(upsert(options, Stages(sys.stderr)), json)


def delete_command(
    source: Annotated[str, typer.Option("--input", help="File of ids, one a line, or - for standard input.")],
    output: Output,
    max_line_bytes: MaxLineBytes = 1_000_000,
    max_reject_share: MaxRejectShare = 0.2,
    max_delta_share: MaxDeltaShare = 0.1,
    max_delta_documents: MaxDeltaDocuments = 20_000,
    wait: Wait = 60.0,
    json: Json = None,
) -> None:
    """Deletes documents of the live version by their ids, and publishes the result."""
    with reporting(json):
        options = DeltaOptions(
            output=output,
            source=source,
            max_line_bytes=max_line_bytes,
            max_reject_share=max_reject_share,
            max_share=max_delta_share,
            max_documents=max_delta_documents,
            wait_s=wait,
        )
        _tell(delete(options, Stages(sys.stderr)), json)


def compact_command(
    output: Output,
    model: Annotated[
        Path | None,
        typer.Option(help="Only for ivf-pq: model that built the index; default: what models/DEFAULT names."),
    ] = None,
    threads: Threads = None,
    wait: Wait = 60.0,
    json: Json = None,
) -> None:
    """Folds what was added and deleted into the live version's other files, and publishes the result."""
    with reporting(json):
        options = CompactOptions(output, model or _default_model(), threads or all_cores(), wait)
        report = compact(options, Stages(sys.stderr))
        if json:
            write_json(json, report)
        if report["status"] == "unchanged":
            say(f"{report['version']} has no delta: nothing to compact")
        else:
            counts, index = report["counts"], report["index"]
            say(
                f"{counts['documents']} documents, {index['kind']} index, {report['seconds']['total']:.1f} s\n"
                f"published {report['version']} in {output}"
            )


def _default_model() -> Path | None:
    """Where there is one: most indexes are compacted without."""
    try:
        return default_model()
    except ArtifactNotFoundError:
        return None


def _tell(result: DeltaResult, json: Path | None) -> None:
    if json:
        write_json(json, result.report)
    counts: dict[str, Any] = result.report["counts"]
    told = ", ".join(
        f"{counts[name]} {name}"
        for name in ("new", "replaced", "deleted", "unchanged", "unknown", "repeated", "rejects")
        if counts[name]
    )
    say(f"{told or 'nothing'}; {counts['documents']} documents")
    if result.rejects_file:
        say(f"rejected lines are in {result.rejects_file}")
    if result.warning:
        say(result.warning)
    if result.version is None:
        say(f"nothing to change: {result.report['version']} stays")
    else:
        say(f"published {result.version} in {result.report['seconds']['total']:.1f} s")
