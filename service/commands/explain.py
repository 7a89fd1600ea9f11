"""`glow explain`: why documents match a query, as tables or JSON."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from glow.artifact import IndexRoot
from glow.commands import command, option
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import SearchParams
from glow.options import StrictModel
from glow.records import Document
from glow.runtime import Explanation
from glow.search import analyze_query
from glow.text import Fragment, Highlighter, Highlighting, markup
from glow_service.search import (
    Explanations,
    SearchPlan,
    SearchSession,
    explain,
    passage_document,
    require_explainer,
)

_STYLES = {"": "", "query": "bold yellow", "attended": "bold cyan"}
# Documents may contain control characters, which a terminal would obey.
_CONTROLS = {code: " " for code in (*range(32), *range(127, 160), *range(0xD800, 0xE000))}
BAR_WIDTH = 20


@dataclass(frozen=True, slots=True)
class Explained:
    """The documents of a query with their explanations and snippets, in order."""

    query: str  # text of the query
    documents: Sequence[Document]  # the explained documents
    scores: Sequence[float | None]  # score of each; None if the search did not find it
    explanations: Explanations  # explanations of all documents
    fragments: Sequence[Mapping[str, list[Fragment]]]  # field -> snippets, for each document


def as_json(explained: Explained) -> dict[str, Any]:
    """Everything as JSON, with the members of a `POST /search` response."""
    explanations = explained.explanations
    hits = [
        {
            "id": document.id,
            "score": score,
            "scores": {"dense": cosine},
            "highlights": {name: [markup(one) for one in found] for name, found in fragments.items()},
            "explanation": {**_terms(explanation), **_left_out(explanations, place)},
        }
        for place, (document, score, cosine, explanation, fragments) in enumerate(
            zip(
                explained.documents,
                explained.scores,
                explanations.cosines,
                explanations.documents,
                explained.fragments,
                strict=True,
            )
        )
    ]
    return {"query": {"text": explained.query, "explanation": _terms(explanations.query)}, "hits": hits}


def _terms(explanation: Explanation) -> dict[str, Any]:
    return {"terms": [asdict(term) for term in explanation.terms], "specials": explanation.specials}


def _left_out(explanations: Explanations, place: int) -> dict[str, Any]:
    if not explanations.left_out:
        return {}
    return {
        "leave_one_out": [{"word": one.word, "delta": one.deltas[place]} for one in explanations.left_out]
    }


def as_tables(explained: Explained, words: int) -> RenderableType:
    """Tables of the query, then of each document."""
    return Group(*_blocks(explained, words))


def _blocks(explained: Explained, words: int) -> Iterator[RenderableType]:
    explanations = explained.explanations
    yield Text.assemble(("query  ", "dim"), (_plain(explained.query), "bold"))
    yield _term_table(explanations.query, words)
    for place, document in enumerate(explained.documents):
        score = explained.scores[place]
        ranked = "not found by the search" if score is None else f"score {score:.4f}"
        yield Text.assemble(
            f"\n{place + 1}  ",
            (_plain(document.id), "bold"),
            f"  {ranked}, cosine {explanations.cosines[place]:.4f}",
        )
        for name, fragments in explained.fragments[place].items():
            for fragment in fragments:
                yield Text.assemble((f"{_plain(name)}  ", "dim"), _marked(fragment))
        yield _term_table(explanations.documents[place], words)
        if explanations.left_out:
            yield _delta_table(explanations, place)


def _term_table(explanation: Explanation, words: int) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("word", "field"):
        table.add_column(name)
    for name in ("tf", "idf", "weight", "attention"):
        table.add_column(name, justify="right")
    table.add_column("")
    most = max((term.attention for term in explanation.terms), default=1.0) or 1.0
    for term in explanation.terms[:words]:
        figures = (str(term.tf), f"{term.idf:.2f}", f"{term.weight:.2f}", f"{term.attention:.1%}")
        bar = Text("█" * round(BAR_WIDTH * term.attention / most), "cyan")
        table.add_row(Text(_plain(term.word)), Text(_plain(term.field), "dim"), *figures, bar)
    table.add_row(Text("[CLS], [SEP]", "dim"), "", "", "", "", f"{explanation.specials:.1%}", "")
    return table


def _delta_table(explanations: Explanations, place: int) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("without")
    table.add_column("score changes by", justify="right")
    for one in explanations.left_out:
        delta = one.deltas[place]
        table.add_row(Text(_plain(one.word)), Text(f"{delta:+.4f}", "red" if delta < 0 else "green"))
    return table


def _marked(fragment: Fragment) -> Text:
    parts = [(_plain(part), _STYLES[mark]) for part, mark in fragment.parts]
    return Text.assemble("… " if fragment.cut_before else "", *parts, " …" if fragment.cut_after else "")


def _plain(text: str) -> str:
    return text.translate(_CONTROLS)


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
    call = SearchPlan(query, top_k=depth, offset=0, candidates=CANDIDATES, params=SearchParams())
    hits = {hit.id: hit for hit in SearchSession(index, call).run().found.hits}
    names = ids or list(hits)
    # If an index has passages, explain the best one: the encoder read passages, not whole documents.
    passages = {name: hit.passage for name, hit in hits.items()}
    stored = index[STORED_FIELDS]
    documents = [passage_document(stored.get(name), passages.get(name)) for name in names]
    return documents, [hits[name].score if name in hits else None for name in names]
