"""The command that compares two versions: diff."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from glow.artifact import IndexRoot
from glow.collection import read_queries
from glow.errors import ConfigError
from glow.evaluation import sample_texts
from glow.query_log import read_query_log
from glow.search import Index
from glow_index_builder.building import write_json
from glow_index_builder.commands.gate import QueryLog
from glow_index_builder.commands.reporting import Json, Output, all_cores, reporting, say
from glow_index_builder.versions import MOST_QUERIES, Diff, diff_versions, sampled_queries

__all__ = ["diff_command"]

Old = Annotated[str, typer.Argument(help="The older version.", metavar="A")]
New = Annotated[str, typer.Argument(help="The newer version.", metavar="B")]


def diff_command(
    output: Output,
    old: Old,
    new: New,
    queries: Annotated[
        Path | None, typer.Option("--queries", help="Ask these (queries.jsonl) for the overlap of hits.")
    ] = None,
    query_log: QueryLog = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: all cores.")] = None,
    json: Json = None,
) -> None:
    """Says how two versions differ: documents, hits, weights of words, model and options."""
    with reporting(json):
        if queries and query_log:
            raise ConfigError("--queries and --query-log are two sources of the same thing; give one")
        root = IndexRoot(output)
        before, after = (Index.open(root.folder(name), threads=threads or all_cores()) for name in (old, new))
        asked = _asked(queries, query_log)
        texts = sampled_queries(after) if asked is None else sample_texts(asked, MOST_QUERIES)
        found = diff_versions(before, after, texts)
        if json:
            write_json(json, found.report())
        say(_summary(found))


def _asked(queries: Path | None, query_log: Path | None) -> Iterator[str] | None:
    if queries:
        return (query.text for query in read_queries(queries))
    return (query.query for query in read_query_log(query_log)) if query_log else None


def _summary(found: Diff) -> str:
    documents, idf = found.documents, found.idf
    lines = [
        f"from {found.old} to {found.new}",
        f"documents: {documents.added} added, {documents.removed} removed, {documents.changed} changed, "
        f"{documents.same} the same",
    ]
    lines += [f"  {kind}: {', '.join(ids)}" for kind, ids in documents.first.items() if ids]
    for retriever, overlap in found.overlap.items():
        share = "nothing found" if overlap is None else f"{overlap:.3f}"
        lines.append(f"overlap@10 {retriever}: {share} over {found.queries} queries")
    lines.append(
        f"idf: {idf.mean_change:.4f} mean change, {idf.words_added} words more, {idf.words_removed} less"
    )
    lines += [f"  {each['word']}: {each['old']} to {each['new']}" for each in idf.largest]
    if found.model:
        lines.append(f"model: {found.model['old']} to {found.model['new']}")
    lines += [f"option {name}: {each['old']} to {each['new']}" for name, each in found.options.items()]
    return "\n".join(lines)
