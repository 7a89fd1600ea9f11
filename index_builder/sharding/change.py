"""Documents added, replaced and deleted in a set: each shard takes the lines that fall to it, then the set names the new versions."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from glow.artifact import IndexRoot, folder_for
from glow.errors import RecordError
from glow.schema import FieldSchema
from glow.search import MODEL_FOLDER, ShardRecord, ShardSet, read_shard_set, shard_of, shard_root
from glow_index_builder.building import stage_seconds
from glow_index_builder.deltas import (
    ChangeOptions,
    CompactOptions,
    DeltaResult,
    UpsertOptions,
    compact,
    delete,
    read_identifier,
    upsert,
)
from glow_index_builder.input import Line, LineReader, RejectLog, open_sources
from glow_index_builder.progress import Stages
from glow_index_builder.sharding.split import part_file, to_line
from glow_index_builder.sharding.version import record_of, write_set
from glow_index_builder.versions import disk_errors

__all__ = ["compact_set", "delete_from_set", "upsert_into_set"]

O = TypeVar("O", bound=ChangeOptions)
Read = Callable[[Line], tuple[str, bytes]]
"""A line -> the id in it, and the line as its shard shall read it."""


def upsert_into_set(options: UpsertOptions, stages: Stages) -> DeltaResult:
    """As `upsert`, over a set."""
    root = IndexRoot(options.output)
    live = root.folder(root.current())
    schema = FieldSchema.load(live / MODEL_FOLDER / "schema.json")
    rename = options.rename or root.manifest(live.name).parameters.get("rename") or {}
    reader = LineReader(schema.names, dict(rename), options.max_line_bytes)

    def read(line: Line) -> tuple[str, bytes]:
        document = reader.read(line)
        return document.id, to_line(document)

    return _change(options, stages, read, upsert, {"rename": {}})


def delete_from_set(options: ChangeOptions, stages: Stages) -> DeltaResult:
    """As `delete`, over a set."""
    reader = LineReader((), {}, options.max_line_bytes)

    def read(line: Line) -> tuple[str, bytes]:
        reader.require_whole(line)
        identifier = read_identifier(line.data)
        return identifier, line.data.rstrip(b"\r\n") + b"\n"

    return _change(options, stages, read, delete, {})


def compact_set(options: CompactOptions, stages: Stages) -> dict[str, Any]:
    """As `compact`, over a set: every shard that has a delta."""
    root = IndexRoot(options.output)
    with disk_errors(root.path), root.locked(options.wait_s):
        live = _aligned(root)
        reports, records = [], []
        for shard, record in enumerate(live.shards):
            report = compact(options.model_copy(update={"output": shard_root(root.path, shard)}), stages)
            reports.append(report)
            changed = report["status"] != "unchanged"
            records.append(record_of(shard_root(root.path, shard), report["version"]) if changed else record)
        version = _publish(root, live, records)
    status = "unchanged" if version is None else "published"
    return {
        "status": status,
        "version": version or root.current(),
        "counts": {"documents": sum(record.documents for record in records)},
        "index": {"kind": records[0].kind},
        "shards": reports,
        "seconds": stage_seconds(stages.seconds),
    }


def _change(
    options: O,
    stages: Stages,
    read: Read,
    apply: Callable[[O, Stages], DeltaResult],
    update: dict[str, Any],
) -> DeltaResult:
    root = IndexRoot(options.output)
    with disk_errors(root.path), root.locked(options.wait_s):
        live, version = _aligned(root), root.new_version()
        rejects_file = root.path / f"rejects-{version}.jsonl"
        with folder_for(root.path / f"{version}-work") as folder:
            with RejectLog(rejects_file) as rejects:
                lines = _divide(options, read, len(live.shards), folder, rejects)
                if rejects.count:
                    rejects.require_share(sum(lines), options.max_reject_share, rejects_file)
            records, results = list(live.shards), []
            for shard, count in enumerate(lines):
                if not count:
                    continue
                target = shard_root(root.path, shard)
                given = {**update, "source": str(part_file(folder, shard)), "output": target}
                result = apply(options.model_copy(update={**given, "json_file": None}), stages)
                results.append(result)
                if result.version is not None:
                    records[shard] = record_of(target, result.version)
        made = _publish(root, live, records)
    report = _report(root, records, results, made)
    report["counts"]["rejects"] = rejects.count
    report["seconds"] = stage_seconds(stages.seconds)
    warning = "; ".join(dict.fromkeys(result.warning for result in results if result.warning))
    return DeltaResult(made, report, warning, rejects_file if rejects.count else None)


def _divide(options: ChangeOptions, read: Read, shards: int, folder: Path, rejects: RejectLog) -> list[int]:
    """Writes each line to the file of its shard; returns how many each has."""
    lines = [0] * shards
    with ExitStack() as stack:
        files = [stack.enter_context(part_file(folder, shard).open("wb")) for shard in range(shards)]
        for source in open_sources(options.source):
            for line in source.lines(options.max_line_bytes):
                try:
                    identifier, data = read(line)
                except RecordError as error:
                    rejects.add(source.name, line.number, str(error), line.data)
                    continue
                shard = shard_of(identifier, shards)
                files[shard].write(data)
                lines[shard] += 1
    return lines


def _aligned(root: IndexRoot) -> ShardSet:
    """The live set, with its versions live in the shards' own roots, which a rollback of the set does not touch."""
    live = read_shard_set(root.folder(root.current()))
    for shard, record in enumerate(live.shards):
        own = IndexRoot(shard_root(root.path, shard))
        if own.live() != record.version:
            own.publish(record.version)
    return live


def _publish(root: IndexRoot, live: ShardSet, records: list[ShardRecord]) -> str | None:
    """Makes the set of these versions the live one; None where it is already."""
    if records == live.shards:
        return None
    parameters = root.manifest(root.current()).parameters
    version = root.new_version()
    write_set(root, version, records, parameters)
    root.publish(version)
    return version


def _report(
    root: IndexRoot, records: list[ShardRecord], results: Iterable[DeltaResult], version: str | None
) -> dict[str, Any]:
    counts: dict[str, int] = {
        "new": 0,
        "replaced": 0,
        "deleted": 0,
        "unchanged": 0,
        "unknown": 0,
        "repeated": 0,
    }
    for result in results:
        for name in counts:
            counts[name] += result.report["counts"].get(name, 0)
    counts["documents"] = sum(record.documents for record in records)
    status = "unchanged" if version is None else "published"
    return {"status": status, "version": version or root.current(), "counts": counts}
