"""`glow explain`: explains in a terminal why documents match a query."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from glow.artifact import IndexRoot
from glow.commands import command, option
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import SearchParams
from glow.options import StrictModel
from glow.records import Document
from glow.search import analyze_query
from glow.text import Highlighter, Highlighting
from glow_service.commands.explain_tables import Explained, as_json, as_tables
from glow_service.search import SearchCall, SearchSession, explain, passage_document, require_explainer

__all__ = ["ExplainOptions", "explain_command"]

CANDIDATES = 200


class ExplainOptions(StrictModel):
    """Options of `glow explain`."""

    index_root: Path = option(..., "Index root, whose live version is searched.", env="GLOW_INDEX_ROOT")
    query: str = option(..., "The query.")
    ids: tuple[str, ...] = option(
        (), "Document to explain in place of the hits; repeatable.", flag="--id", metavar="ID"
    )
    top_k: int = option(5, "Hits to explain without --id.", ge=1, le=CANDIDATES)
    words: int = option(10, "Most words per text.", ge=1)
    leave_one_out: bool = option(False, "Also show how each score changes without each query word.")
    fragments: int = option(2, "Most snippets per field.", ge=1)
    fragment_chars: int = option(200, "Most characters per snippet.", ge=20)
    json_output: bool = option(False, "Print JSON in place of tables.", flag="--json")


@command(ExplainOptions)
def explain_command(options: ExplainOptions) -> None:
    """Says why documents answer a query."""
    root = IndexRoot(options.index_root)
    explained = _explain(Index.open(root.folder(root.current())), options)
    if options.json_output:
        sys.stdout.write(json.dumps(as_json(explained), indent=2) + "\n")
    else:
        Console(highlight=False).print(as_tables(explained, options.words))


def _explain(index: Index, options: ExplainOptions) -> Explained:
    require_explainer(index)
    query = analyze_query(index, options.query).text
    documents, scores = _documents(index, query, options.ids, options.top_k)
    explanations = explain(index, query, documents, leave_one_out=options.leave_one_out)
    highlighter, shown = (
        Highlighter(index.preprocessor, index.analyzer),
        Highlighting(options.fragments, options.fragment_chars),
    )
    fragments = [
        highlighter.document(document, query, None, explanation.attended_words(), shown)
        for document, explanation in zip(documents, explanations.documents, strict=True)
    ]
    return Explained(query, documents, scores, explanations, fragments)


def _documents(
    index: Index, query: str, ids: Sequence[str], top_k: int
) -> tuple[list[Document], list[float | None]]:
    """The documents to explain, and their scores; None for a document that the search does not find."""
    depth = CANDIDATES if ids else top_k
    call = SearchCall(query, top_k=depth, offset=0, candidates=CANDIDATES, params=SearchParams())
    hits = {hit.id: hit for hit in SearchSession(index, call).run().found.hits}
    names = ids or list(hits)
    # If an index has passages, explain the best one: the encoder read passages, not whole documents.
    passages = {name: hit.passage for name, hit in hits.items()}
    stored = index[STORED_FIELDS]
    documents = [passage_document(stored.get(name), passages.get(name)) for name in names]
    return documents, [hits[name].score if name in hits else None for name in names]
