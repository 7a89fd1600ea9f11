"""`glow search`: searches a local index or a service, and prints ranked hits or JSON."""

import html
import os
import re
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from msgspec import json
from pydantic import model_validator
from rich.console import Console
from rich.text import Text

from glow.artifact import IndexRoot
from glow.client import GlowClient
from glow.commands import STDOUT, JsonOptions, command, counted, option, write_text
from glow.contract import FoundHits, encode
from glow.errors import QueryError
from glow.index import Index
from glow.search import RetrieverOrAuto, read_synonyms
from glow_service.search.plan import plan_search
from glow_service.search.request import SearchRequest, members_of_address, parsed
from glow_service.search.run import SearchSession
from glow_service.settings import Settings

KEY_VARIABLE, ROOT_VARIABLE = "GLOW_API_KEY", "GLOW_INDEX_ROOT"
MARK = re.compile(r"(<em[^>]*>)(.*?)</em>", re.DOTALL)
_CONTROLS = {code: " " for code in (*range(32), *range(127, 160), *range(0xD800, 0xE000))}
SNIPPET_FIELDS = 2


class SearchOptions(JsonOptions):
    """Options of `glow search`; exactly one of `index_root` and `url` is required."""

    text: str = option(
        "", "The query; without one, --filter lists what it matches.", is_argument=True, metavar="[TEXT]"
    )
    index_root: Path | None = option(
        None, "Local index root, whose live version is searched.", env=ROOT_VARIABLE
    )
    url: str = option(
        "", f"Service to search instead, such as http://127.0.0.1:8080; API key in {KEY_VARIABLE}."
    )
    top_k: int = option(10, "Hits to show.", ge=1, le=100)
    retriever: RetrieverOrAuto = option("auto", "Retriever; auto: the default of the service.")
    filter: str = option("", 'Restricts the hits, such as \'{"price": {"lte": 50}}\'.', metavar="JSON")
    sort: str = option("", "Sort keys with commas; `-price` begins with the highest.", metavar="KEYS")
    facets: str = option("", "Metadata fields to count, with commas.", metavar="NAMES")
    fields: str = option("", "Fields and metadata to return, with commas.", metavar="NAMES")
    rerank: bool = option(False, "Re-rank the first hits with the index's re-ranker.")
    synonyms: str = option("", "File of synonyms, for a local index.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        is_preset = str(self.index_root) == os.environ.get(ROOT_VARIABLE)  # then an address may replace it
        if (self.index_root is None) == (not self.url) and not (is_preset and self.url):
            raise ValueError("give either --index-root DIR or --url http://…")
        return self


@command(SearchOptions)
def search_command(options: SearchOptions) -> None:
    """Searches an index or a service, and prints the hits."""
    if not (options.text.strip() or options.filter):
        raise QueryError("the query is empty; give some text, or --filter")
    if options.url:
        with GlowClient(options.url, api_key=os.environ.get(KEY_VARIABLE) or None) as client:
            answer: FoundHits = client.search(options.text or None, **_members(options))
    else:
        answer = _search_index(options)
    if options.json_file:
        write_text(options.json_file, json.format(encode(answer), indent=2).decode() + "\n")
    if options.json_file != STDOUT:
        _print(answer, Console(highlight=False, soft_wrap=True), has_fields=bool(options.fields))


def _search_index(options: SearchOptions) -> FoundHits:
    assert options.index_root is not None  # noqa: S101 - checked with the options
    root = IndexRoot(options.index_root)
    index = Index.open(root.folder(root.current()))
    request = parsed(SearchRequest, {"query": options.text, **_members(options)})
    settings, synonyms = Settings(index_root=options.index_root), read_synonyms(options.synonyms)
    return SearchSession(index, plan_search(request, settings, index, synonyms)).run().found


def _members(options: SearchOptions) -> dict[str, Any]:
    members: dict[str, Any] = {"top_k": options.top_k, "highlight": bool(options.text.strip())}
    if options.retriever != "auto":
        members["retriever"] = options.retriever
    texts = {name: getattr(options, name) for name in ("filter", "sort", "facets", "fields")}
    address = urlencode({name: text for name, text in texts.items() if text})
    members |= members_of_address(address.encode())
    return {**members, "rerank": True} if options.rerank else members


def _print(answer: FoundHits, console: Console, *, has_fields: bool) -> None:
    query, hits = answer.query, answer.hits
    if query.corrected is not None:
        console.print(Text(f"showing results for {printable(query.searched)!r}", "italic"))
    if query.unknown:
        console.print(Text(f"no document contains {printable(', '.join(query.unknown))}", "italic"))
    if hits and answer.confidence == "none":
        console.print(Text("probably no document answers the query; these are the nearest", "italic"))
    for hit in hits:
        title, url = printable(hit.text("title")), printable(hit.url)
        console.print(Text.assemble(f"{hit.rank:>3}  ", (title or hit.id, "bold"), f"  {hit.score:.4f}"))
        console.print(Text("     " + "  ".join(filter(None, (hit.id, url))), "dim"))
        for name, value in {**hit.fields, **hit.metadata}.items() if has_fields else ():
            if name not in ("title", "url"):
                console.print(f"     {printable(name)}: {_text(value):.200}", markup=False)
        for name, snippets in list((hit.highlights or {}).items())[-SNIPPET_FIELDS:]:
            if name not in ("title", "url"):
                console.print(Text.assemble("     ", _marked(" ".join(snippets))))
    for name, facet in answer.facets.items():
        counts = ", ".join(f"{_text(each.value)} {each.count}" for each in facet.values)
        console.print(f"{printable(name)}: {counts}", markup=False)
    version = answer.index.version
    console.print(
        Text(f"{counted(len(hits), 'hit')} of {version}" if hits else f"nothing found in {version}", "dim")
    )


def _text(value: object) -> str:
    return printable(value if isinstance(value, str) else encode(value).decode())


def _marked(snippet: str) -> Text:
    """Converts a snippet, which is HTML with only text and <em>, to terminal text."""
    text, end = Text(), 0
    for match in MARK.finditer(snippet):
        text.append(printable(html.unescape(snippet[end : match.start()])))
        style = "bold cyan" if "attended" in match[1] else "bold yellow"
        text.append(printable(html.unescape(match[2])), style)
        end = match.end()
    return text.append(printable(html.unescape(snippet[end:])))


def printable(text: str) -> str:
    """The text of a document without control characters, which a terminal would obey."""
    return text.translate(_CONTROLS)
