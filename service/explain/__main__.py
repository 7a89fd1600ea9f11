"""`python -m service.explain`: why documents answer a query, in a terminal.

Exit codes: 0 done; 1 a bug; 2 a query, id or option that cannot be used; 3 an index that is missing, damaged or built
without explanations; 5 a device or package that is not there; 130 interrupted.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from glow.artifact import IndexRoot
from glow.errors import (
    ArtifactError,
    DependencyError,
    DeviceError,
    DocumentNotFoundError,
    GlowError,
    InputError,
)
from glow.records import Document
from glow.search import Index, SearchParams
from glow.text import Highlighter, Highlighting
from glow_service.errors import NotAvailableError
from glow_service.explain.tables import Explained, as_json, as_tables
from glow_service.search import SearchCall, SearchSession, explain, passage_document, require_explainer

__all__ = ["app", "main"]

EXIT_CODES: tuple[tuple[type[GlowError], int], ...] = (
    (NotAvailableError, 3),
    (InputError, 2),
    (DocumentNotFoundError, 2),
    (ArtifactError, 3),
    (DeviceError, 5),
    (DependencyError, 5),
)
EXIT_INTERRUPTED = 130
CANDIDATES = 200

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def command(
    index_root: Annotated[Path, typer.Option(help="Index root; its live version is asked.")],
    query: Annotated[str, typer.Option(help="The query.")],
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="Document to explain in place of the hits; may be repeated."),
    ] = None,
    top_k: Annotated[
        int, typer.Option(min=1, max=CANDIDATES, help="Hits to explain where no --id is given.")
    ] = 5,
    words: Annotated[int, typer.Option(min=1, help="Most words to show of each text.")] = 10,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Also what each word of the query does to each score.")
    ] = False,
    fragments: Annotated[int, typer.Option(min=1, help="Most snippets of a field.")] = 2,
    fragment_chars: Annotated[int, typer.Option(min=20, help="Most characters of a snippet.")] = 200,
    json_output: Annotated[bool, typer.Option("--json", help="Write JSON in place of tables.")] = False,
) -> None:
    """Say why documents answer a query."""
    try:
        root = IndexRoot(index_root)
        index = Index.open(root.folder(root.current()))
        options = Highlighting(fragments, fragment_chars)
        explained = _explain(index, query, ids or [], top_k, options, leave_one_out=leave_one_out)
    except GlowError as error:
        sys.stderr.write(f"service.explain: error ({error.code}): {' '.join(str(error).split())}\n")
        status = next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)
        raise typer.Exit(status) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(EXIT_INTERRUPTED) from error
    if json_output:
        sys.stdout.write(json.dumps(as_json(explained), indent=2) + "\n")
    else:
        Console(highlight=False).print(as_tables(explained, words))


def _explain(
    index: Index, query: str, ids: Sequence[str], top_k: int, options: Highlighting, *, leave_one_out: bool
) -> Explained:
    require_explainer(index)
    documents, scores = _documents(index, query, ids, top_k)
    explanations = explain(index, query, documents, leave_one_out=leave_one_out)
    highlighter = Highlighter(index.preprocessor)
    fragments = [
        highlighter.document(document, query, None, found.attended_words(), options)
        for document, found in zip(documents, explanations.documents, strict=True)
    ]
    return Explained(query, documents, scores, explanations, fragments)


def _documents(
    index: Index, query: str, ids: Sequence[str], top_k: int
) -> tuple[list[Document], list[float | None]]:
    """The documents to explain, and the score of those that the search finds."""
    depth = CANDIDATES if ids else top_k
    call = SearchCall(query, top_k=depth, offset=0, candidates=CANDIDATES, params=SearchParams())
    hits = SearchSession(index, call).run().hits
    scores = {hit.document.id: hit.score for hit in hits}
    # Where an index has passages, the best one stands for the document: it is what the tower read.
    read = {hit.document.id: passage_document(hit.document, hit.passage) for hit in hits}
    documents = [read.get(name) or index.documents.get(name) for name in ids] if ids else list(read.values())
    return documents, [scores.get(document.id) for document in documents]


def main() -> None:
    """Runs the command line."""
    app()


if __name__ == "__main__":
    main()
