"""LlamaIndex and MCP with their real packages, against a running service."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilters
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from glow.adapters import GlowStore
from glow.adapters.llama_index import GlowLlamaRetriever, add_nodes, delete_nodes
from glow.adapters.mcp import make_server
from glow.client import GlowClient
from glow.errors import ConfigError
from tests.attacks.harness import ROOT
from tests.slow_peer import SlowPeer


def test_llama_index_writes_and_finds(new_store: Callable[[], GlowStore]) -> None:
    store = new_store()
    nodes = [
        TextNode(id_=f"n{number}", text=text, metadata={"n": number})
        for number, text in enumerate(("a lynx in the snow", "a ship at sea"))
    ]
    assert add_nodes(store, nodes) == ["n0", "n1"]
    found = GlowLlamaRetriever(store, similarity_top_k=1).retrieve("lynx")
    assert [(each.node.node_id, each.node.metadata, each.node.get_content()) for each in found] == [
        ("n0", {"n": 0}, "a lynx in the snow")
    ]
    delete_nodes(store, ["n0"])
    assert [each.node.node_id for each in GlowLlamaRetriever(store, similarity_top_k=5).retrieve("lynx")] == [
        "n1"
    ]


def test_llama_index_filters_and_waits(documents: GlowStore) -> None:
    def found(operator: str, value: Any, condition: str = "and") -> list[str]:
        wanted = MetadataFilters.from_dicts(
            [{"key": "lang", "operator": operator, "value": value}], condition=condition
        )
        nodes = asyncio.run(GlowLlamaRetriever(documents, filters=wanted).aretrieve("bees"))
        return sorted(each.node.metadata["title"] for each in nodes)

    assert found("==", "de") == found("!=", "en") == found("nin", ["en"], "or") == ["Dampfloks"]
    assert found("in", ["en"]) == found(">", "de") == ["How bees find home", "Owls"]
    with pytest.raises(ConfigError, match="no filter text_match"):
        found("text_match", "d")


def test_stores_are_apart_and_cannot_write_without_a_key(
    documents: GlowStore, new_store: Callable[[], GlowStore]
) -> None:
    assert list(new_store().scan()) == []
    with pytest.raises(ConfigError, match="this store is read-only"):
        documents.write(["x"], ["y"], [{}])
    assert documents.get("nobody") is None


async def asked(url: str, calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[str], list[Any]]:
    """The tools of `glow mcp`, and what they answer."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "glow", "mcp", "--url", url], cwd=str(ROOT), env=environment
    )
    async with Client(stdio_client(server)) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        return tools, [await client.call_tool(name, arguments) for name, arguments in calls]


def test_an_agent_searches_reads_and_counts(service: str) -> None:
    filtered = {"query": "home or night", "filter": {"field": "namespace", "eq": "docs"}, "top_k": 2}
    tools, answers = asyncio.run(
        asked(
            service,
            [
                ("search", {"query": "how do bees find home", "top_k": 1}),
                ("search", filtered),
                ("get_document", {"id": "owls"}),
                ("facets", {"fields": ["lang"]}),
                ("get_document", {"id": "nobody"}),
            ],
        )
    )
    assert tools == ["search", "get_document", "facets"]
    best, two, document, counts, missing = answers
    assert best.structured_content["hits"][0]["id"] == "bees"
    assert len(two.structured_content["hits"]) == 2
    assert document.structured_content["fields"]["title"] == ["Owls"]
    assert counts.structured_content["lang"]["en"] >= 2
    assert missing.is_error and "nobody" in missing.content[0].text


def test_a_slow_service_and_a_call_that_cannot_be_are_told_to_the_agent(service: str) -> None:
    async def test(peer: SlowPeer) -> None:
        with GlowClient(peer.url, timeout_s=1.0) as client:
            async with Client(make_server(client)) as agent:
                refused = await agent.call_tool("get_document", {"id": "a/../b"})
                assert refused.is_error and "without parts '.' and '..'" in refused.content[0].text
                with peer.slow("hang"):
                    started = time.monotonic()
                    calls = [agent.call_tool("search", {"query": f"bees {number}"}) for number in range(4)]
                    for late in await asyncio.gather(*calls):
                        assert late.is_error and "in time" in late.content[0].text
                    assert time.monotonic() - started < 2.5
                found = await agent.call_tool("search", {"query": "how do bees find home", "top_k": 1})
                assert found.structured_content["hits"][0]["id"] == "bees"

    with SlowPeer(int(service.rpartition(":")[2])) as peer:
        asyncio.run(test(peer))
