"""`glow explain`: why documents match a query or do not, as sentences and tables, or as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from glow.artifact import IndexRoot
from glow.commands import STDOUT, JsonOptions, command, option, write_report
from glow.contract import DocumentExplanation
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import SearchParams
from glow.records import Document
from glow.runtime import Explanation
from glow.search import RetrieverOrAuto, analyze_query, read_synonyms
from glow.text import Fragment, Highlighter, Highlighting, markup
from glow_service.commands.search import printable
from glow_service.search.explanations import Explanations, explain, require_explainer
from glow_service.search.hits import passage_document
from glow_service.search.plan import SearchPlan, plan_search
from glow_service.search.request import SearchRequest, members_of_address, parsed
from glow_service.search.run import SearchSession
from glow_service.search.why import DocumentSearch
from glow_service.settings import Settings

_STYLES = {"": "", "query": "bold yellow", "attended": "bold cyan"}
BAR_WIDTH = 20
CANDIDATES = 200


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
    hits = []
    for place, document in enumerate(explained.documents):
        explanation = _terms(explanations.documents[place])
        if explanations.left_out:
            explanation["leave_one_out"] = _changes(explanations, place)
        fragments = explained.fragments[place].items()
        hit = {
            "id": document.id,
            "score": explained.scores[place],
            "scores": {"dense": explanations.cosines[place]},
            "highlights": {name: [markup(each) for each in texts] for name, texts in fragments},
            "explanation": explanation,
        }
        hits.append(hit)
    return {"query": {"text": explained.query, "explanation": _terms(explanations.query)}, "hits": hits}


def _terms(explanation: Explanation) -> dict[str, Any]:
    return {"terms": [asdict(term) for term in explanation.terms], "specials": explanation.specials}


def _changes(explanations: Explanations, place: int) -> list[dict[str, Any]]:
    return [{"word": one.word, "delta": one.deltas[place]} for one in explanations.left_out]


def as_tables(explained: Explained, words: int) -> Iterator[RenderableType]:
    """Tables of the query, then of each document."""
    explanations = explained.explanations
    yield Text.assemble(("query  ", "dim"), (printable(explained.query), "bold"))
    yield _term_table(explanations.query, words)
    for place, document in enumerate(explained.documents):
        score = explained.scores[place]
        ranked = "not among the nearest" if score is None else f"score {score:.4f}"
        yield Text.assemble(
            f"\n{place + 1}  ",
            (printable(document.id), "bold"),
            f"  {ranked}, cosine {explanations.cosines[place]:.4f}",
        )
        for name, fragments in explained.fragments[place].items():
            for fragment in fragments:
                parts = [(printable(part), _STYLES[mark]) for part, mark in fragment.parts]
                before, after = "… " if fragment.cut_before else "", " …" if fragment.cut_after else ""
                yield Text.assemble((f"{printable(name)}  ", "dim"), before, *parts, after)
        yield _term_table(explanations.documents[place], words)
        if explanations.left_out:
            yield _change_table(_changes(explanations, place))


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
        table.add_row(Text(printable(term.word)), Text(printable(term.field), "dim"), *figures, bar)
    table.add_row(Text("[CLS], [SEP]", "dim"), "", "", "", "", f"{explanation.specials:.1%}", "")
    return table


def _change_table(changes: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("without")
    table.add_column("score changes by", justify="right")
    for one in changes:
        style = "red" if one["delta"] < 0 else "green"
        table.add_row(Text(printable(one["word"])), Text(f"{one['delta']:+.4f}", style))
    return table


class ExplainOptions(JsonOptions):
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
    retriever: RetrieverOrAuto = option("auto", "Retriever of the search that --id explains.")
    filter: str = option("", "Its filter, as for `glow search`.", metavar="JSON")
    synonyms: str = option("", "Its file of synonyms.")


@command(ExplainOptions)
def explain_command(options: ExplainOptions) -> None:
    """Says why documents answer a query, or why a document is not found."""
    root = IndexRoot(options.index_root)
    index = Index.open(root.folder(root.current()))
    reasons = _reasons(index, options) if options.ids else []
    # The sentences need no explain graphs, and the tables do.
    explained = None if reasons and index.explainer is None else _explain(index, options)
    if options.json_file:
        members: dict[str, Any] = {"documents": msgspec.to_builtins(reasons)} if reasons else {}
        write_report(options.json_file, members | (as_json(explained) if explained else {}))
    if options.json_file == STDOUT:
        return
    console = Console(highlight=False)
    for reason in reasons:
        ranks = ", ".join(f"{name} {rank:,}" for name, rank in reason.ranks.items())
        read = f"the encoder read {reason.read.tokens} of at most {reason.read.limit} tokens"
        lines = (f"{reason.id}  {reason.summary}", f"    ranks: {ranks}; {read}", "")
        console.print(Text("\n".join(map(printable, lines))), soft_wrap=True)
    if explained is not None:
        console.print(Group(*as_tables(explained, options.words)))


def _reasons(index: Index, options: ExplainOptions) -> list[DocumentExplanation]:
    members = members_of_address(urlencode({"filter": options.filter}).encode()) if options.filter else {}
    if options.retriever != "auto":
        members["retriever"] = options.retriever
    request = parsed(SearchRequest, {"query": options.query, **members})
    settings = Settings(index_root=options.index_root)
    plan = plan_search(request, settings, index, read_synonyms(options.synonyms))
    return [DocumentSearch(index, plan, each, request.filter).run() for each in options.ids]


def _explain(index: Index, options: ExplainOptions) -> Explained:
    require_explainer(index)
    query = analyze_query(index, options.query).text
    depth = CANDIDATES if options.ids else options.top_k
    plan = SearchPlan(query, top_k=depth, offset=0, candidates=CANDIDATES, params=SearchParams())
    hits = {hit.id: hit for hit in SearchSession(index, plan).run().found.hits}
    pairs = [(name, hits.get(name)) for name in options.ids or hits]
    # If an index has passages, explain the best one: the encoder read passages, not whole documents.
    stored = index[STORED_FIELDS]
    documents = [passage_document(stored.get(name), hit.passage if hit else None) for name, hit in pairs]
    explanations = explain(index, query, documents, leave_one_out=options.leave_one_out)
    highlighter = Highlighter(index.preprocessor, index.analyzer)
    shown = Highlighting(options.fragments, options.fragment_chars)
    fragments = [
        highlighter.document(document, query, None, explanation.attended_words(), shown)
        for document, explanation in zip(documents, explanations.documents, strict=True)
    ]
    scores = [hit.score if hit else None for _, hit in pairs]
    return Explained(query, documents, scores, explanations, fragments)
