"""A set of shards: the input is cut by ids, every shard is built as an index of its own, and a version of the set names them.

What a shard's build did stays, so the same command goes on after any end. Nothing is live before the set's own CURRENT says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glow.artifact import IndexRoot
from glow.errors import ConfigError
from glow.runtime import Model
from glow.search import shard_root
from glow_index_builder.building import (
    FrozenStatistics,
    WorkFolder,
    build,
    key_of,
    open_work,
    stage_seconds,
)
from glow_index_builder.input import REJECTS_FILE, RejectLog, Source, open_sources
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages
from glow_index_builder.sharding.split import part_file, split_documents
from glow_index_builder.sharding.version import record_of, write_set
from glow_index_builder.versions import disk_errors

__all__ = ["SetResult", "build_set"]


@dataclass(frozen=True, slots=True)
class SetResult:
    """What a build of a set made.

    Attributes:
        version: of the set.
        report: as docs/shards.md describes it.
        rejects_file: the rejected lines, if there are any.
    """

    version: str
    report: dict[str, Any]
    rejects_file: Path | None


def build_set(options: BuildOptions, stages: Stages) -> SetResult:
    """Builds a set of `options.shards` shards, and publishes it.

    Raises:
        ConfigError: if an option is given that a set has no use for.
        GlowError: as `build`.
    """
    _require_known(options)
    model = Model.open(options.model_folder)
    options.check_rename(model.preprocessor.schema.names)
    root = IndexRoot(options.output)
    sources = open_sources(options.source)
    key = key_of(options, sources, model, None)
    with disk_errors(options.output), open_work(root.path, key, resume=options.resume) as work:
        version = root.new_version()
        keep = root.path / f"rejects-{version}.jsonl"
        folder, rejects = _split(options, sources, model, work, stages, keep)
        frozen = FrozenStatistics.load(folder)
        records = []
        for shard in range(options.shards):
            with work.step(f"shard-{shard}") as step:
                if not step.is_done:
                    stages.note(f"shard {shard}")
                    made = build(_options_of(options, folder, shard), stages.fresh(), frozen)
                    step.values = {"version": made.version}
            name = step.values["version"]
            records.append(record_of(shard_root(root.path, shard), name))
        with stages.stage("set"):
            made_set = write_set(root, version, records, options.parameters() | {"rejects": rejects})
            if options.publish:
                root.publish(version)
        rejects_file = folder / REJECTS_FILE
        if rejects_file.is_file():
            rejects_file.replace(keep)
    report = {
        "status": "built",
        "version": version,
        "published": options.publish,
        "counts": made_set.counts,
        "shards": [record.model_dump(include={"version", "documents", "kind"}) for record in records],
        "rejects": rejects,
        "seconds": stage_seconds(stages.seconds),
    }
    return SetResult(version, report, keep if keep.is_file() else None)


def _split(
    options: BuildOptions,
    sources: list[Source],
    model: Model,
    work: WorkFolder,
    stages: Stages,
    keep_rejects: Path,
) -> tuple[Path, Mapping[str, int]]:
    """The folder with what falls to each shard, and what was rejected how often."""
    sizes = [source.size_bytes for source in sources]
    total = sum(size for size in sizes if size) if all(sizes) else None
    with work.step("split") as step, stages.stage("split", total, "bytes") as advance:
        if not step.is_done:
            with RejectLog(step.folder / REJECTS_FILE) as rejects:
                parts = split_documents(sources, model, options, step.folder, rejects, advance)
                rejects.require_share(sum(parts.documents), options.max_reject_share, keep_rejects)
            parts.frozen.save(step.folder)
            step.values = {"rejects": rejects.counts["faults"]}
    return step.folder, step.values["rejects"]


def _options_of(options: BuildOptions, folder: Path, shard: int) -> BuildOptions:
    """The build of one shard, as if its documents were all."""
    update: dict[str, Any] = {
        "source": str(part_file(folder, shard)),
        "output": shard_root(options.output, shard),
        "shards": 1,
        "rename": {},
        "json_file": None,
    }
    return options.model_copy(update=update)


def _require_known(options: BuildOptions) -> None:
    asked = {
        "--store": options.store is not None,
        "--rerank": options.rerank is not None,
        "--learned": options.learned,
        "--gate": options.gate is not None,
    }
    if given := [name for name, is_given in asked.items() if is_given]:
        raise ConfigError(f"{', '.join(given)}: not with --shards; build one index, or leave it out")
