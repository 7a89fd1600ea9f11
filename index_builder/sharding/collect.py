"""Removing old versions of a set, and those of its shards that no set names any more."""

from dataclasses import replace

from glow.artifact import IndexRoot
from glow.search import is_set, read_shard_set, shard_root
from glow_index_builder.versions import Collected, collect

__all__ = ["collect_set"]


def collect_set(root: IndexRoot, keep: int, *, dry_run: bool = False, work: bool = False) -> Collected:
    """As `collect`, and then over the roots of the shards, where what a set names stays.

    Versions of shards that no set names are those of sets that are gone, or of a command that is at work: the latter are
    younger than an hour, and stay as `fresh`.
    """
    collected = collect(root, keep, dry_run=dry_run, work=work)
    named: dict[int, set[str]] = {}
    for version in root.versions():
        if version in collected.removed or not is_set(root.folder(version)):
            continue
        for shard, record in enumerate(read_shard_set(root.folder(version)).shards):
            named.setdefault(shard, set()).add(record.version)
    for shard, versions in sorted(named.items()):
        own = collect(
            IndexRoot(shard_root(root.path, shard)), 1, dry_run=dry_run, work=work, named=frozenset(versions)
        )
        collected = replace(
            collected,
            removed=(*collected.removed, *(f"shards/{shard}/{name}" for name in own.removed)),
            leftovers=(*collected.leftovers, *(f"shards/{shard}/{name}" for name in own.leftovers)),
            freed_bytes=collected.freed_bytes + own.freed_bytes,
        )
    return collected
