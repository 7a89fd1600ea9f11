"""Versions of a set: written from the versions of its shards, verified with them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glow.artifact import FileRecord, IndexRoot, Manifest, query_side_files, verify
from glow.errors import MismatchError
from glow.search import (
    DELTA_FOLDER,
    MODEL_FOLDER,
    REPORT_FILE,
    SHARDS_FILE,
    SPELLING_FOLDER,
    STEMS_FOLDER,
    TERMS_FOLDER,
    Index,
    ShardField,
    ShardRecord,
    ShardSet,
    is_set,
    read_shard_set,
    shard_root,
)
from glow_index_builder.building import write_json
from glow_index_builder.versions import VersionWriter, link_files

__all__ = ["live_set", "record_of", "verify_set", "write_set"]


def record_of(root: Path, version: str) -> ShardRecord:
    """What a set says of a shard's version, which is verified and opened for that.

    Args:
        root: index root of the shard.
        version: its name there.

    Raises:
        ArtifactError: if it is missing or damaged.
    """
    index = Index.open(IndexRoot(root).folder(version))
    columns = index.columns
    fields = {} if columns is None else columns.fields
    return ShardRecord(
        version=version,
        manifest=index.manifest.hash,
        documents=index.documents.count,
        kind=index.dense.kind,
        dimensions=index.dense.dimensions,
        largest=None if index.impacts is None else index.impacts.largest,
        analyzer=index.analyzer.name,
        fields={
            name: ShardField(documents=field.documents, types=list(field.parts))
            for name, field in fields.items()
        },
        left_out={} if columns is None else dict(columns.left_out),
    )


def write_set(
    root: IndexRoot, version: str, records: Sequence[ShardRecord], parameters: Mapping[str, Any]
) -> Manifest:
    """Writes a version of the set; it is not live yet.

    Args:
        root: of the set.
        version: its name.
        records: of the shards, by number.
        parameters: for the manifest.

    Raises:
        MismatchError: if the shards are not of one model and one term table.
        BuildError: if the disk cannot hold it.
    """
    folders = [
        IndexRoot(shard_root(root.path, shard)).folder(record.version) for shard, record in enumerate(records)
    ]
    manifests = [
        IndexRoot(shard_root(root.path, shard)).manifest(record.version)
        for shard, record in enumerate(records)
    ]
    _require_alike(manifests)
    first = manifests[0]
    with VersionWriter(root, version).write() as writer:
        model = first.parents["model"]
        assert isinstance(model, dict)  # noqa: S101 - every build writes it
        names = query_side_files(model["files"])
        query_side = {f"{MODEL_FOLDER}/{name}" for name in names}
        shared = (f"{TERMS_FOLDER}/", f"{STEMS_FOLDER}/")
        kept = {
            name: file for name, file in first.files.items() if name in query_side or name.startswith(shared)
        }
        writer.known.update(link_files(folders[0], kept, writer.folder))
        for shard, (folder, manifest) in enumerate(zip(folders, manifests, strict=True)):
            writer.known.update(_link_spelling(folder, manifest, writer.folder, shard))
        made = ShardSet(shards=list(records))
        text = made.model_dump_json(indent=1) + "\n"
        (writer.folder / SHARDS_FILE).write_text(text, encoding="utf-8")
        write_json(
            writer.folder / REPORT_FILE,
            {"shards": [record.model_dump() for record in records], "version": version},
        )
        writer.hashes = {name: first.hashes[name] for name in ("model", "terms")}
        files = {name: digest for name, digest in model["files"].items() if name in names}
        writer.parents = {"model": {**model, "files": files}}
        writer.parameters = dict(parameters)
        writer.counts = {
            "documents": made.documents,
            "dimensions": records[0].dimensions,
            "shards": len(records),
        }
    return root.manifest(version)


def _link_spelling(folder: Path, manifest: Manifest, target: Path, shard: int) -> dict[str, FileRecord]:
    """A shard's spelling tables, its delta's too, under names of their own; returns the records of what are hard links."""
    linked: dict[str, FileRecord] = {}
    for below in (SPELLING_FOLDER, f"{DELTA_FOLDER}/{SPELLING_FOLDER}"):
        names = [name for name in manifest.files if name.startswith(f"{below}/")]
        tables = {name.removeprefix(f"{below}/"): manifest.files[name] for name in names}
        copied = f"{SPELLING_FOLDER}-{shard:03d}" + ("-delta" if below != SPELLING_FOLDER else "")
        found = link_files(folder / below, tables, target / copied)
        linked |= {f"{copied}/{name}": record for name, record in found.items()}
    return linked


def _require_alike(manifests: Sequence[Manifest]) -> None:
    first = manifests[0]
    for shard, manifest in enumerate(manifests):
        for name in ("model", "terms"):
            if manifest.hashes.get(name) != first.hashes.get(name):
                raise MismatchError(
                    f"shard {shard} has another {name} hash than shard 0; build the set again, all shards with one table"
                )


def live_set(root: IndexRoot) -> ShardSet | None:
    """The set that is live in a root; None where an index is, or nothing."""
    version = root.live()
    if version is None or not is_set(root.folder(version)):
        return None
    return read_shard_set(root.folder(version))


def verify_set(root: IndexRoot, version: str) -> ShardSet:
    """Verifies a set and, below the same root, every shard's version whole.

    Raises:
        ArtifactError: if anything is missing, damaged, or not what the set was made of.
    """
    folder = root.folder(version)
    verify(folder, "index")
    shards = read_shard_set(folder)
    for number, record in enumerate(shards.shards):
        if record_of(shard_root(root.path, number), record.version) != record:
            raise MismatchError(
                f"shard {number}: version {record.version} is not the one that {version} was made of; build the set again"
            )
    return shards
