"""Commands that publish, and the gate before them: publish, gate; and the gate's options, which build shares."""

from pathlib import Path
from typing import Annotated

import typer

from glow.artifact import IndexRoot
from glow_index_builder.building import write_json
from glow_index_builder.commands.reporting import Json, Output, Version, all_cores, reporting, say
from glow_index_builder.versions import GateOptions, judge, newest, publish_judged

__all__ = [
    "Force",
    "MaxRejects",
    "MaxShrink",
    "MinOverlap",
    "QueryLog",
    "Split",
    "Threshold",
    "gate_command",
    "gate_words",
    "publish_command",
]

QueryLog = Annotated[
    Path | None, typer.Option("--query-log", help="The service's query log, to compare without judgements.")
]
Split = Annotated[
    str | None,
    typer.Option("--gate-split", help="Judgements, qrels/SPLIT.tsv; default: dev, or the only one."),
]
Threshold = Annotated[
    float,
    typer.Option("--gate-threshold", help="Lowest end that the interval of the nDCG@10 difference may have."),
]
MaxShrink = Annotated[
    float,
    typer.Option(
        "--gate-max-shrink", min=0.0, max=1.0, help="Share of the live documents that may be missing."
    ),
]
MaxRejects = Annotated[
    float,
    typer.Option("--gate-max-rejects", min=0.0, max=1.0, help="Share of lines that may have been rejected."),
]
MinOverlap = Annotated[
    float,
    typer.Option("--gate-min-overlap", min=0.0, max=1.0, help="Least overlap@10 on logged queries."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Publish what the gate refuses; the manifest says who did.")
]


def publish_command(output: Output, version: Version = None, force: Force = False) -> None:
    """Makes a version the live one (default: the newest), after verifying it whole."""
    with reporting(None):
        root = IndexRoot(output)
        chosen = version or newest(root)
        publish_judged(root, chosen, force=force)
        say(f"published {chosen}")


def gate_command(
    output: Output,
    version: Version = None,
    data: Annotated[
        Path | None, typer.Option(help="Data folder with queries.jsonl and qrels/SPLIT.tsv.")
    ] = None,
    query_log: QueryLog = None,
    split: Split = None,
    threshold: Threshold = -0.01,
    max_shrink: MaxShrink = 0.2,
    max_rejects: MaxRejects = 0.05,
    min_overlap: MinOverlap = 0.5,
    publish: Annotated[bool, typer.Option("--publish", help="Publish it if it passes.")] = False,
    force: Force = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    json: Json = None,
) -> None:
    """Compares a version (default: the newest) with the live one, and may publish it."""
    with reporting(json):
        root = IndexRoot(output)
        chosen = version or newest(root)
        options = GateOptions(
            data=data,
            query_log=query_log,
            split=split,
            threshold=threshold,
            max_shrink=max_shrink,
            max_rejects=max_rejects,
            min_overlap=min_overlap,
            force=force,
            threads=threads or all_cores(),
        )
        record = judge(root, chosen, options, publish=publish)
        if json:
            write_json(json, {"status": "judged", "version": chosen, "published": publish, "gate": record})
        say("\n".join([*gate_words(record), f"{'published' if publish else 'judged'} {chosen}"]))


def gate_words(record: dict[str, object]) -> list[str]:
    """A verdict in a few lines, for people."""
    checks = record.get("checks")
    lines = [f"gate: {record.get('status')}, {record.get('queries')} queries of {record.get('source')}"]
    for check in checks if isinstance(checks, list) else []:
        bound = "at_least" if "at_least" in check else "at_most"
        mark = "ok    " if check["passed"] else "FAILED"
        lines.append(f"  {mark} {check['name']}: {check['found']} ({bound.replace('_', ' ')} {check[bound]})")
    return lines
