"""The commands: build, verify and tune; the others are registered here.

How they end is in `glow_index_builder.commands.reporting`.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from glow.artifact import IndexRoot, default_model
from glow.errors import BuildError
from glow.search import DEFAULT_CANDIDATES, Index
from glow_index_builder.building import RECALL_FLOOR, BuildResult, build, write_json
from glow_index_builder.commands.delta import compact_command, delete_command, upsert_command
from glow_index_builder.commands.diff import diff_command
from glow_index_builder.commands.gate import (
    Force,
    MaxRejects,
    MaxShrink,
    MinOverlap,
    QueryLog,
    Split,
    Threshold,
    gate_command,
    gate_words,
    publish_command,
)
from glow_index_builder.commands.reporting import Json, Output, Version, all_cores, reporting, say
from glow_index_builder.commands.snapshot import export_command, import_command
from glow_index_builder.commands.versions import (
    gc_command,
    pin_command,
    rollback_command,
    unpin_command,
    versions_command,
)
from glow_index_builder.options import BuildOptions, parse_rename
from glow_index_builder.progress import Stages
from glow_index_builder.versions import TuneOptions, parse_gate, tune_index

__all__ = ["app"]

app = typer.Typer(
    help="Builds, verifies and publishes index versions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("publish")(publish_command)
app.command("rollback")(rollback_command)
app.command("versions")(versions_command)
app.command("gate")(gate_command)
app.command("gc")(gc_command)
app.command("pin")(pin_command)
app.command("unpin")(unpin_command)
app.command("diff")(diff_command)
app.command("upsert")(upsert_command)
app.command("delete")(delete_command)
app.command("compact")(compact_command)
app.command("export")(export_command)
app.command("import")(import_command)


class IndexChoice(StrEnum):
    """`--index`."""

    AUTO = "auto"
    FLAT = "flat"
    HNSW = "hnsw"
    IVF_FLAT = "ivf-flat"
    IVF_PQ = "ivf-pq"


class DeviceChoice(StrEnum):
    """`--device`."""

    CPU = "cpu"
    CUDA = "cuda"


class RunnerChoice(StrEnum):
    """`--runner`."""

    LOCAL = "local"
    RAY = "ray"


class TermStatsChoice(StrEnum):
    """`--term-stats`."""

    CORPUS = "corpus"
    MODEL = "model"
    BLEND = "blend"


@app.command("build")
def build_command(
    source: Annotated[
        str, typer.Option("--input", help="A file, a folder of them, or - for standard input.")
    ],
    output: Output,
    model: Annotated[
        Path | None, typer.Option(help="Model folder; default: what models/DEFAULT names.")
    ] = None,
    publish: Annotated[bool, typer.Option(help="Make the new version the live one.")] = True,
    index: Annotated[IndexChoice, typer.Option(help="Kind of dense index.")] = IndexChoice.AUTO,
    device: Annotated[DeviceChoice, typer.Option(help="Where to encode and build.")] = DeviceChoice.CPU,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    rename: Annotated[
        list[str] | None, typer.Option("--map", help="FOUND=WANTED renames a key; may be repeated.")
    ] = None,
    term_stats: Annotated[
        TermStatsChoice, typer.Option(help="Documents that idf comes from.")
    ] = TermStatsChoice.CORPUS,
    max_words: Annotated[int, typer.Option(min=1, help="Most words in the term table.")] = 2_000_000,
    max_line_bytes: Annotated[int, typer.Option(min=1, help="Longest line that is read.")] = 1_000_000,
    max_reject_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of bad lines that fails the build.")
    ] = 0.2,
    memory_mb: Annotated[int, typer.Option(min=1, help="MiB the served index may take, for auto.")] = 4096,
    passages: Annotated[
        bool, typer.Option("--passages", help="Cut long documents into passages, with a vector for each.")
    ] = False,
    passage_field: Annotated[
        str | None, typer.Option(help="Field that is cut; default: the model's body.", show_default=False)
    ] = None,
    passage_overlap: Annotated[int, typer.Option(min=0, help="Sentences that neighbours share.")] = 0,
    max_passages: Annotated[int, typer.Option(min=1, help="Most passages of a document.")] = 128,
    lexical: Annotated[bool, typer.Option(help="Index the words too, for lexical and hybrid search.")] = True,
    explain: Annotated[bool, typer.Option(help="Copy what reasons for hits need from the model.")] = True,
    shard_documents: Annotated[
        int, typer.Option(min=1, help="Documents that are encoded as one piece.")
    ] = 256,
    workers: Annotated[int, typer.Option(min=1, help="Processes that encode; 1: this one.")] = 1,
    runner: Annotated[RunnerChoice, typer.Option(help="Where they run.")] = RunnerChoice.LOCAL,
    ray_address: Annotated[
        str | None, typer.Option(help="Ray cluster; default: Ray is started here.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on where the same build ended before.")] = True,
    gate: Annotated[
        str | None,
        typer.Option(
            help="Publish only what is good enough: judged queries (a folder), or live.", show_default=False
        ),
    ] = None,
    query_log: QueryLog = None,
    gate_split: Split = None,
    gate_threshold: Threshold = -0.01,
    gate_max_shrink: MaxShrink = 0.2,
    gate_max_rejects: MaxRejects = 0.05,
    gate_min_overlap: MinOverlap = 0.5,
    force: Force = False,
    json: Json = None,
) -> None:
    """Builds a version from documents, and publishes it."""
    with reporting(json):
        options = BuildOptions(
            model=model or default_model(),
            source=source,
            output=output,
            publish=publish,
            index=index.value,
            device=device.value,
            threads=threads or all_cores(),
            rename=parse_rename(rename or []),
            term_stats=term_stats.value,
            max_words=max_words,
            max_line_bytes=max_line_bytes,
            max_reject_share=max_reject_share,
            memory_mb=memory_mb,
            passages=passages,
            passage_field=passage_field,
            passage_overlap=passage_overlap,
            max_passages=max_passages,
            lexical=lexical,
            explain=explain,
            shard_documents=shard_documents,
            workers=workers,
            runner=runner.value,
            ray_address=ray_address,
            resume=resume,
            gate=parse_gate(
                gate,
                query_log,
                split=gate_split,
                threshold=gate_threshold,
                max_shrink=gate_max_shrink,
                max_rejects=gate_max_rejects,
                min_overlap=gate_min_overlap,
                force=force,
                threads=threads or all_cores(),
            ),
        )
        result = build(options, Stages(sys.stderr))
        if json:
            _write_report(json, result)
        say(_summary(result, output))


@app.command("verify")
def verify_command(output: Output, version: Version = None, json: Json = None) -> None:
    """Checks every file of a version (default: the live one) and opens it."""
    with reporting(json):
        root = IndexRoot(output)
        chosen = version or root.current()
        index = Index.open(root.folder(chosen))
        if json:
            write_json(json, {"status": "sound", "version": chosen, "counts": index.manifest.counts})
        say(f"{chosen} is sound: {index.documents.count} documents, {index.dense.kind}, {index.model}")


@app.command("tune")
def tune_command(
    output: Output,
    data: Annotated[Path, typer.Option(help="Data folder with queries.jsonl and qrels/SPLIT.tsv.")],
    split: Annotated[str, typer.Option(help="Judgements, qrels/SPLIT.tsv.")],
    version: Version = None,
    candidates: Annotated[
        int, typer.Option(min=1, help="Hits of each part that are fused.")
    ] = DEFAULT_CANDIDATES,
    publish: Annotated[bool, typer.Option(help="Make the new version the live one.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Of the folds and the bootstrap.")] = 0,
    json: Json = None,
) -> None:
    """Fits how hybrid search fuses to judged queries, and stores it with a new version of the same files."""
    with reporting(json):
        result = tune_index(TuneOptions(output, version, data, split, candidates, publish, seed))
        if json:
            write_json(json, result.report(published=publish))
        say(result.summary(published=publish))


def _write_report(json: Path, result: BuildResult) -> None:
    try:
        write_json(json, result.report)
    except OSError as error:
        raise BuildError(f"version {result.version} is built, but not its report {json}: {error}") from error


def _summary(result: BuildResult, output: Path) -> str:
    report = result.report
    counts, index, recall = report["counts"], report["index"], report["recall"]
    lines = [
        f"{counts['documents']} documents, {index['kind']} index ({index['why']}), "
        f"recall@{recall['depth']} {recall['recall']:.3f}, {report['seconds']['total']:.1f} s"
    ]
    if passages := report.get("passages"):
        lines.append(f"{passages['count']} passages, {passages['per_document']:.1f} a document")
    if recall["recall"] < RECALL_FLOOR:
        lines.append(
            f"that recall is under {RECALL_FLOOR}: it grows with ef_search (hnsw) or nprobe (ivf-*) of a search, "
            "and --index flat has no loss"
        )
    if result.rejects_file:
        faults = ", ".join(f"{count} x {fault}" for fault, count in report["rejects"].items())
        lines.append(f"{counts['rejects']} lines rejected: {faults}; see {result.rejects_file}")
    if gate := report.get("gate"):
        lines += gate_words(gate)
    if report["published"]:
        lines.append(f"published {result.version} in {output}")
    else:
        lines.append(f"built {result.version}; publish it: python -m index_builder publish --output {output}")
    return "\n".join(lines)
