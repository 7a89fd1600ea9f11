"""Commands that change which versions there are and which one is live: versions, rollback, pin, unpin, gc."""

from typing import Annotated

import typer

from glow.artifact import IndexRoot
from glow.errors import ArtifactNotFoundError
from glow_index_builder.building import write_json
from glow_index_builder.commands.reporting import Json, Output, reporting, say
from glow_index_builder.versions import Collected, collect, list_versions, table

__all__ = ["gc_command", "pin_command", "rollback_command", "unpin_command", "versions_command"]

Named = Annotated[str, typer.Argument(help="Version name.", metavar="VERSION")]


def versions_command(output: Output, json: Json = None) -> None:
    """Lists the versions: which is live, which were, which are pinned, and what the gate found."""
    with reporting(json):
        rows = list_versions(IndexRoot(output))
        if json:
            write_json(json, {"status": "listed", "versions": [row.values() for row in rows]})
        say(table(rows))


def rollback_command(output: Output, json: Json = None) -> None:
    """Makes the version live that was so before the live one, after verifying it whole."""
    with reporting(json):
        root = IndexRoot(output)
        root.current()  # a root that is not there is not made by taking its lock
        with root.locked():
            left, version = root.current(), root.rollback().name
        if json:
            write_json(json, {"status": "rolled back", "version": version, "left": left})
        say(f"rolled back to {version}; {left} is still there")


def pin_command(output: Output, version: Named) -> None:
    """Keeps a version from being removed by `gc`."""
    with reporting(None):
        IndexRoot(output).pin(version)
        say(f"pinned {version}")


def unpin_command(output: Output, version: Named) -> None:
    """Lets `gc` remove a version again."""
    with reporting(None):
        root = IndexRoot(output)
        if not root.path.is_dir():
            raise ArtifactNotFoundError(f"no index root at {root.path}; see --output")
        say(f"unpinned {version}" if root.unpin(version) else f"{version} was not pinned")


def gc_command(
    output: Output,
    keep: Annotated[
        int, typer.Option(min=1, help="Versions that stay, the live one among them, beside pinned ones.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    work: Annotated[
        bool, typer.Option("--work", help="Remove interrupted builds, too, which then cannot go on.")
    ] = False,
    json: Json = None,
) -> None:
    """Removes old versions, and what killed commands left behind."""
    with reporting(json):
        found = collect(IndexRoot(output), keep, dry_run=dry_run, work=work)
        if json:
            write_json(json, found.report())
        say(_summary(found))


def _summary(found: Collected) -> str:
    verb = "would remove" if found.dry_run else "removed"
    lines = [f"keeps {version} ({why})" for version, why in found.kept.items()]
    lines += [f"{verb} {name}" for name in (*found.removed, *found.leftovers)]
    count = len(found.removed) + len(found.leftovers)
    lines.append(f"{verb} {count or 'nothing'}" + (f", {found.freed_bytes / 1e6:.1f} MB" if count else ""))
    return "\n".join(lines)
