"""The commands about whole versions: versions, rollback, pin, unpin, gc, publish, gate."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from glow.artifact import IndexRoot
from glow.commands import IndexRootOptions, JsonOptions, command, option, say, write_report
from glow.errors import ArtifactError, ArtifactNotFoundError
from glow_index_builder.versions.gate import GateOptions, judge, publish_judged
from glow_index_builder.versions.gc import Collected, collect


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version."""

    version: str
    state: str  # `live`, `previous` (a rollback takes the first), `damaged` (unreadable manifest) or ""
    pinned: bool  # whether `gc` must keep it
    documents: int | None = None  # number of documents; None if unknown
    size_bytes: int = 0  # size of its files, including those shared with other versions
    created: str = ""  # UTC, ISO 8601
    gate: str = ""  # `passed`, `failed`, `forced`, or "" without a gate
    model: str = ""  # short hash of its model
    made_from: str = ""  # the version that it was derived from; "" for a build


def list_versions(root: IndexRoot) -> list[VersionRow]:
    """All versions: the live one, then previously live ones, then the rest, newest first."""
    if not root.path.is_dir():
        raise ArtifactNotFoundError(f"no index root at {root.path}; see --index-root")
    live, before, pinned = [each for each in (root.live(),) if each], root.history(), root.pinned()
    states = {**dict.fromkeys(before, "previous"), **dict.fromkeys(live, "live")}
    names = [*live, *before, *(each for each in reversed(root.versions()) if each not in states)]
    return [_row(root, version, states.get(version, ""), version in pinned) for version in names]


def newest(root: IndexRoot) -> str:
    """The version whose name is last."""
    versions = root.versions()
    if not versions:
        raise ArtifactNotFoundError(f"no version in {root.path}; run `glow build` first")
    return versions[-1]


def table(rows: Sequence[VersionRow]) -> str:
    """The versions as text, one per line."""
    lines = [f"{'version':40} {'state':8} {'documents':>10} {'MB':>9}  gate    pinned"]
    for row in rows:
        documents = "?" if row.documents is None else f"{row.documents}"
        lines.append(
            f"{row.version:40} {row.state:8} {documents:>10} {row.size_bytes / 1e6:9.1f}  {row.gate:7} "
            f"{'pinned' if row.pinned else ''}".rstrip()
        )
    return "\n".join(lines)


def _row(root: IndexRoot, version: str, state: str, pinned: bool) -> VersionRow:
    try:
        manifest = root.manifest(version)
    except ArtifactError:
        return VersionRow(version, "damaged", pinned)
    gate, parent = manifest.parameters.get("gate"), manifest.parents.get("version")
    return VersionRow(
        version,
        state,
        pinned,
        manifest.counts.get("documents"),
        sum(record.size_bytes for record in manifest.files.values()),
        manifest.created,
        str(gate.get("status", "")) if isinstance(gate, dict) else "",
        manifest.hashes.get("model", "")[:8],
        str(parent.get("name", "")) if isinstance(parent, dict) else "",
    )


class PublishOptions(IndexRootOptions):
    """What to publish."""

    version: str | None = option(
        None, "Version name; default: the newest.", is_argument=True, metavar="[VERSION]"
    )
    force: bool = option(False, "Publish even if the gate refuses; the manifest records who did.")


class GateCommandOptions(GateOptions, JsonOptions, IndexRootOptions):
    """What to judge, and whether to publish it."""

    version: str | None = option(
        None, "Version name; default: the newest.", is_argument=True, metavar="[VERSION]"
    )
    publish: bool = option(False, "Publish it if it passes.")


@command(PublishOptions)
def publish_command(options: PublishOptions) -> None:
    """Makes a version live (default: the newest), after verifying all files."""
    root = IndexRoot(options.index_root)
    version = options.version or newest(root)
    publish_judged(root, version, force=options.force)
    say(f"published {version}")


@command(GateCommandOptions)
def gate_command(options: GateCommandOptions) -> None:
    """Compares a version (default: the newest) with the live one, and may publish it."""
    root = IndexRoot(options.index_root)
    version = options.version or newest(root)
    record = judge(root, version, options, publish=options.publish)
    write_report(
        options.json_file,
        {"status": "judged", "version": version, "published": options.publish, "gate": record},
    )
    say("\n".join([*gate_words(record), f"{'published' if options.publish else 'judged'} {version}"]))


def gate_words(record: dict[str, object]) -> list[str]:
    """Formats a verdict as a few lines of text."""
    checks = record.get("checks")
    lines = [f"gate: {record.get('status')}, {record.get('queries')} queries of {record.get('source')}"]
    for check in checks if isinstance(checks, list) else []:
        bound = "at_least" if "at_least" in check else "at_most"
        mark = "ok    " if check["passed"] else "FAILED"
        lines.append(f"  {mark} {check['name']}: {check['found']} ({bound.replace('_', ' ')} {check[bound]})")
    return lines


class ReportedOptions(JsonOptions, IndexRootOptions):
    """An index root, and where the report goes."""


class RollbackOptions(ReportedOptions):
    """Where to go back to."""

    version: str | None = option(
        None, "A version that was live; default: the previous one.", is_argument=True, metavar="[VERSION]"
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
    write_report(options.json_file, {"status": "listed", "versions": [asdict(row) for row in rows]})
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
