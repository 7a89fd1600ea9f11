"""Explanations as tables in a terminal, and as JSON like the response of `POST /search`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from glow.records import Document
from glow.runtime import Explanation
from glow.text import Fragment, markup
from glow_service.search import Explanations

__all__ = ["Explained", "as_json", "as_tables"]

_STYLES = {"": "", "query": "bold yellow", "attended": "bold cyan"}
# Documents may contain control characters, which a terminal would obey.
_CONTROLS = {code: " " for code in (*range(32), *range(127, 160), *range(0xD800, 0xE000))}
BAR_WIDTH = 20


@dataclass(frozen=True, slots=True)
class Explained:
    """The documents of a query with their explanations and snippets, in order.

    Attributes:
        query: text of the query.
        documents: the explained documents.
        scores: score of each; None if the search did not find it.
        explanations: explanations of all documents.
        fragments: field -> snippets, for each document.
    """

    query: str
    documents: Sequence[Document]
    scores: Sequence[float | None]
    explanations: Explanations
    fragments: Sequence[Mapping[str, list[Fragment]]]


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
    """Tables of the query, then of each document.

    Args:
        explained: what to show.
        words: most words per text.
    """
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
