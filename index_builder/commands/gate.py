"""The commands that publish a version or judge it first: publish, gate."""

from glow.artifact import IndexRoot
from glow.commands import IndexRootOptions, JsonOptions, command, option, say, write_report
from glow_index_builder.versions import GateOptions, judge, newest, publish_judged

__all__ = ["GateCommandOptions", "PublishOptions", "gate_command", "gate_words", "publish_command"]


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
