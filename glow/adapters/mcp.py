"""`glow mcp`: a service's search as tools of the Model Context Protocol, over standard input and output (extra `mcp`)."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

from glow.client import GlowClient, SearchHit
from glow.commands import command, option
from glow.errors import DependencyError, GlowError
from glow.options import StrictModel

__all__ = ["McpOptions", "make_server", "mcp_command"]

T = TypeVar("T")
MOST_HITS = 50
MOST_CHARACTERS = 2_000
KEY_VARIABLE = "GLOW_API_KEY"
"""As `glow search` reads it: other users of the machine can read the flags of a process."""


class McpOptions(StrictModel):
    """Which service to offer."""

    url: str = option("http://127.0.0.1:8080", "Service to ask, or a collection of it (http://HOST/v1/NAME).")
    name: str = option("glow", "Name of the server, as agents see it.")


def make_server(client: GlowClient, name: str = "glow") -> Any:
    """A server with the tools `search`, `get_document` and `facets`.

    Args:
        client: of the service.
        name: of the server.

    Raises:
        DependencyError: if the package mcp is not installed.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise DependencyError(
            "glow mcp needs the package mcp: install the extra `mcp` (pip install 'glow-retrieval[mcp]')"
        ) from error
    server = MCPServer(name)

    def told(call: Callable[[], T]) -> T:
        """What the service answers; its refusals, and the client's own, as an agent can read them."""
        try:
            return call()
        except GlowError as error:
            raise ToolError(str(error)) from error

    @server.tool()
    def search(query: str, top_k: int = 10, filter: dict[str, Any] | None = None) -> dict[str, Any]:
        """Finds the documents that answer a question, by meaning and by words.

        Args:
            query: the question, as a person would ask it.
            top_k: how many documents, 1 to 50.
            filter: over metadata, for example {"field": "lang", "eq": "en"}; `facets` says what there is.
        """
        result = told(
            lambda: client.search(query, top_k=max(1, min(top_k, MOST_HITS)), filter=filter, highlight=True)
        )
        return {"hits": [_hit(hit) for hit in result.hits], "index": result.index.version}

    @server.tool()
    def get_document(id: str) -> dict[str, Any]:
        """A whole document by its id.

        Args:
            id: as a hit of `search` has it.
        """
        document = told(lambda: client.document(id))
        return {
            "id": document.id,
            "fields": {name: list(values) for name, values in document.fields.items()},
            "metadata": dict(document.metadata),
        }

    @server.tool()
    def facets(fields: list[str], query: str = "", limit: int = 10) -> dict[str, Any]:
        """The values of metadata fields with their numbers of documents, of those that a query finds or of all.

        Args:
            fields: names of metadata fields.
            query: what the documents should answer; empty for all.
            limit: values of each field, 1 to 50.
        """
        asked = [{"field": field, "limit": max(1, min(limit, MOST_HITS))} for field in fields]
        given: dict[str, Any] = {"query": query} if query else {"filter": {"and": []}}
        found = told(lambda: client.search(**given, facets=asked, top_k=1))
        return {
            name: {str(each.value): each.count for each in facet.values}
            for name, facet in found.facets.items()
        }

    return server


@command(McpOptions)
def mcp_command(options: McpOptions) -> None:
    """Offers a service to agents, by the Model Context Protocol over standard input and output."""
    with GlowClient(options.url, api_key=os.environ.get(KEY_VARIABLE) or None) as client:
        make_server(client, options.name).run()


def _hit(hit: SearchHit) -> dict[str, Any]:
    text = hit.passage.text if hit.passage is not None else hit.text("text")
    found = {
        "id": hit.id,
        "score": round(hit.score, 4),
        "title": hit.text("title"),
        "url": hit.text("url"),
        "text": text[:MOST_CHARACTERS],
    }
    return {**{name: value for name, value in found.items() if value}, "metadata": dict(hit.metadata)}
