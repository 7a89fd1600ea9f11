"""The commands that list, switch and remove versions: versions, rollback, pin, unpin, gc."""

from glow.artifact import IndexRoot
from glow.commands import IndexRootOptions, JsonOptions, command, option, say, write_report
from glow.errors import ArtifactNotFoundError
from glow_index_builder.versions import Collected, collect, list_versions, table

__all__ = ["gc_command", "pin_command", "rollback_command", "unpin_command", "versions_command"]


class ReportedOptions(JsonOptions, IndexRootOptions):
    """An index root, and where the report goes."""


class RollbackOptions(ReportedOptions):
    """Where to go back to."""

    version: str | None = option(
        None,
        "A version that was live; default: the previous one.",
        is_argument=True,
        metavar="[VERSION]",
    )


class PinOptions(IndexRootOptions):
    """Which version."""

    version: str = option(..., "Version name.", is_argument=True, metavar="VERSION")


class GcOptions(ReportedOptions):
    """What stays, and what else goes."""

    keep: int = option(
        ..., "Number of versions to keep, with the live one, in addition to pinned ones.", ge=1
    )
    dry_run: bool = option(False, "Only print what would be removed.")
    work: bool = option(False, "Also remove interrupted builds, which then cannot resume.")


@command(ReportedOptions)
def versions_command(options: ReportedOptions) -> None:
    """Lists the versions: live, previous, pinned, and the gate's results."""
    rows = list_versions(IndexRoot(options.index_root))
    write_report(options.json_file, {"status": "listed", "versions": [row.values() for row in rows]})
    say(table(rows))


@command(RollbackOptions)
def rollback_command(options: RollbackOptions) -> None:
    """Makes the previous version, or an earlier one, live again after verifying all files."""
    root = IndexRoot(options.index_root)
    root.current()  # taking the lock must not create a missing root
    with root.locked():
        before, version = root.current(), root.rollback(options.version).name
    write_report(options.json_file, {"status": "rolled back", "version": version, "left": before})
    say(f"rolled back to {version}; {before} is still there")


@command(PinOptions)
def pin_command(options: PinOptions) -> None:
    """Keeps a version from removal by `gc`."""
    IndexRoot(options.index_root).pin(options.version)
    say(f"pinned {options.version}")


@command(PinOptions)
def unpin_command(options: PinOptions) -> None:
    """Lets `gc` remove a version again."""
    root = IndexRoot(options.index_root)
    if not root.path.is_dir():
        raise ArtifactNotFoundError(f"no index root at {root.path}; see --index-root")
    was_pinned = root.unpin(options.version)
    say(f"unpinned {options.version}" if was_pinned else f"{options.version} was not pinned")


@command(GcOptions)
def gc_command(options: GcOptions) -> None:
    """Removes old versions and remains of killed commands."""
    collected = collect(
        IndexRoot(options.index_root), options.keep, dry_run=options.dry_run, work=options.work
    )
    write_report(options.json_file, collected.report())
    say(_summary(collected))


def _summary(collected: Collected) -> str:
    verb = "would remove" if collected.dry_run else "removed"
    lines = [f"keeps {version} ({why})" for version, why in collected.kept.items()]
    lines += [f"{verb} {name}" for name in (*collected.removed, *collected.leftovers)]
    count = len(collected.removed) + len(collected.leftovers)
    lines.append(
        f"{verb} {count or 'nothing'}" + (f", {collected.freed_bytes / 1e6:.1f} MB" if count else "")
    )
    return "\n".join(lines)
