"""The command that compares two versions: diff."""

from collections.abc import Iterator
from pathlib import Path

from glow.artifact import IndexRoot
from glow.collection import read_queries
from glow.commands import IndexRootOptions, JsonOptions, all_cores, command, option, say, write_report
from glow.errors import ConfigError
from glow.evaluation import sample_texts
from glow.index import Index
from glow.query_log import SkippedLines, read_query_log
from glow_index_builder.versions import MOST_QUERIES, Diff, diff_versions, sampled_queries

__all__ = ["DiffOptions", "diff_command"]


class DiffOptions(JsonOptions, IndexRootOptions):
    """Which versions to compare, and by which queries."""

    old: str = option(..., "The older version.", is_argument=True, metavar="A")
    new: str = option(..., "The newer version.", is_argument=True, metavar="B")
    queries: Path | None = option(None, "Queries (queries.jsonl) for the overlap of hits.", metavar="FILE")
    query_log: Path | None = option(
        None, "Query log of the service, for the overlap of hits.", metavar="FILE"
    )
    threads: int | None = option(None, "Threads of a search; default: all cores.", ge=1)


@command(DiffOptions)
def diff_command(options: DiffOptions) -> None:
    """Says how two versions differ: documents, hits, term weights, model and options."""
    if options.queries and options.query_log:
        raise ConfigError("--queries and --query-log are two sources of the same thing; give one")
    root, threads = IndexRoot(options.index_root), options.threads or all_cores()
    before, after = (Index.open(root.folder(name), threads=threads) for name in (options.old, options.new))
    skipped = SkippedLines()
    queries = _queries(options.queries, options.query_log, skipped)
    texts = sampled_queries(after) if queries is None else sample_texts(queries, MOST_QUERIES)
    diff = diff_versions(before, after, texts)
    write_report(options.json_file, diff.report())
    if skipped.count:
        say(str(skipped))
    say(_summary(diff))


def _queries(queries: Path | None, query_log: Path | None, skipped: SkippedLines) -> Iterator[str] | None:
    if queries:
        return (query.text for query in read_queries(queries))
    return (query.query for query in read_query_log(query_log, skipped)) if query_log else None


def _summary(diff: Diff) -> str:
    documents, idf = diff.documents, diff.idf
    lines = [
        f"from {diff.old} to {diff.new}",
        f"documents: {documents.added} added, {documents.removed} removed, {documents.changed} changed, "
        f"{documents.same} the same",
    ]
    lines += [f"  {kind}: {', '.join(ids)}" for kind, ids in documents.first.items() if ids]
    for retriever, overlap in diff.overlap.items():
        share = "nothing found" if overlap is None else f"{overlap:.3f}"
        lines.append(f"overlap@10 {retriever}: {share} over {diff.queries} queries")
    lines.append(
        f"idf: {idf.mean_change:.4f} mean change, {idf.words_added} words added, {idf.words_removed} removed"
    )
    lines += [f"  {each['word']}: {each['old']} to {each['new']}" for each in idf.largest]
    if diff.model:
        lines.append(f"model: {diff.model['old']} to {diff.model['new']}")
    lines += [f"option {name}: {each['old']} to {each['new']}" for name, each in diff.options.items()]
    return "\n".join(lines)
