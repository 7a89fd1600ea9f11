"""The commands that make or check a version: build, verify."""

import sys
from pathlib import Path

from glow.artifact import IndexRoot
from glow.collection import GENERATED
from glow.commands import IndexRootOptions, JsonOptions, command, counted, option, say, write_report
from glow.errors import BuildError, InputError
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS
from glow_index_builder.building.builder import BuildResult, build
from glow_index_builder.building.report import RECALL_FLOOR, left_out_words
from glow_index_builder.commands.versions import gate_words
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages


class VerifyOptions(JsonOptions, IndexRootOptions):
    """What to verify."""

    version: str | None = option(
        None, "Version name; default: the live one.", is_argument=True, metavar="[VERSION]"
    )


@command(BuildOptions)
def build_command(options: BuildOptions) -> None:
    """Builds a version from documents, and publishes it."""
    result = build(options, Stages(sys.stderr))
    try:
        write_report(options.json_file, result.report)
    except InputError as error:
        raise BuildError(f"version {result.version} is built, without its report: {error}") from error
    say(_summary(result, options.index_root))


@command(VerifyOptions)
def verify_command(options: VerifyOptions) -> None:
    """Checks every file of a version (default: the live one) and opens it."""
    root = IndexRoot(options.index_root)
    version = options.version or root.current()
    index = Index.open(root.folder(version))
    write_report(options.json_file, {"status": "sound", "version": version, "counts": index.manifest.counts})
    say(
        f"{version} is sound: {counted(index[STORED_FIELDS].count, 'document')}, {index[VECTORS].kind}, {index.model}"
    )


def _summary(result: BuildResult, output: Path) -> str:
    report = result.report
    counts, index, recall = report["counts"], report["index"], report["recall"]
    lines = [
        f"{counted(counts['documents'], 'document')}, {index['kind']} index ({index['why']}), "
        f"recall@{recall['depth']} {recall['recall']:.3f}, {report['seconds']['total']:.1f} s"
    ]
    if (ids := report["ids"]).keys() - {"_id"}:
        lines.append(f"ids from {', '.join(f'`{key}`' if key != GENERATED else key for key in ids)}")
    lines += [f"no record has the key {key!r} of --rename-field" for key in report["unused_renames"]]
    lines += [f"input: {form}, {count} documents" for form, count in report["forms"].items()]
    if types := report["options"]["field_types"]:
        lines.append(f"columns: {', '.join(f'{name} {kind}' for name, kind in types.items())}")
    if reused := counts["reused"]:
        lines.append(f"encoded {counts['documents'] - reused}, reused the vectors of {reused}")
    if (long := report["long_documents"])["count"]:
        cut = f" and cut, {long['share_beyond']:.0%} of all text; --passages reads them whole"
        end = f": {counted(passages['count'], 'passage')}" if (passages := report.get("passages")) else cut
        verb = "is" if long["count"] == 1 else "are"
        total = f"{long['count']:,} of {counted(counts['documents'], 'document')} {verb} longer"
        lines.append(f"{total} than the encoder reads ({long['limit']} tokens){end}")
    if recall["recall"] < RECALL_FLOOR:
        lines.append(
            f"that recall is under {RECALL_FLOOR}: it grows with ef_search (hnsw) or nprobe (ivf-*) of a search, "
            "and --index flat has no loss"
        )
    lines += left_out_words(report, result.rejects_file)
    if gate := report.get("gate"):
        lines += gate_words(gate)
    if report["published"]:
        lines.append(f"published {result.version} in {output}")
    else:
        lines.append(f"built {result.version}; publish it: glow publish --index-root {output}")
    return "\n".join(lines)
