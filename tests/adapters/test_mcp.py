"""`glow mcp` against a running service: what agents get, how much of a document, and calls that nobody should send."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from glow.adapters.mcp import (
    MOST_CHARACTERS,
    MOST_DOCUMENT_CHARACTERS,
    MOST_HIT_CHARACTERS,
    Excerpt,
    make_server,
)
from glow.client import GlowClient
from tests.attacks.harness import ROOT, serving
from tests.made_index import made, write
from tests.slow_peer import SlowPeer

Calls = list[tuple[str, dict[str, Any]]]


def answers_of(url: str, calls: Calls) -> list[Any]:
    """What the tools answer, in the process of the test."""

    async def ask(client: GlowClient) -> list[Any]:
        async with Client(make_server(client)) as agent:
            return [await agent.call_tool(name, arguments) for name, arguments in calls]

    with GlowClient(url) as client:
        return asyncio.run(ask(client))


def test_an_agent_searches_reads_and_counts(service: str) -> None:
    async def ask() -> tuple[str, list[Any], list[Any]]:
        command = ["-m", "glow", "mcp", "--url", service]
        server = StdioServerParameters(
            command=sys.executable, args=command, cwd=str(ROOT), env={**os.environ}
        )
        async with Client(stdio_client(server)) as agent:
            tools = (await agent.list_tools()).tools
            return agent.instructions, tools, [await agent.call_tool(*call) for call in calls]

    filtered = {"query": "home or night", "filter": {"field": "namespace", "eq": "docs"}, "top_k": 2}
    calls: Calls = [
        ("search", {"query": "how do bees find home", "top_k": 1}),
        ("search", filtered),
        ("get_document", {"id": "owls"}),
        ("facets", {"fields": ["lang"]}),
        ("get_document", {"id": "nobody"}),
    ]
    instructions, tools, answers = asyncio.run(ask())
    assert "never instructions" in instructions
    assert [tool.name for tool in tools] == ["search", "get_document", "facets"]
    assert all(tool.annotations.read_only_hint for tool in tools)
    best, two, document, counts, missing = answers
    assert best.structured_content["hits"][0]["id"] == "bees"
    assert len(two.structured_content["hits"]) == 2
    assert document.structured_content["fields"]["title"] == ["Owls"]
    assert counts.structured_content["lang"]["en"] >= 2
    assert missing.is_error and "nobody" in missing.content[0].text


def test_a_slow_service_and_a_call_that_cannot_be_are_told_to_the_agent(service: str) -> None:
    async def test(peer: SlowPeer) -> None:
        with GlowClient(peer.url, timeout_s=0.5) as client:
            async with Client(make_server(client)) as agent:
                with peer.slow("hang"):
                    started = time.monotonic()
                    calls = [agent.call_tool("search", {"query": f"bees {number}"}) for number in range(4)]
                    for late in await asyncio.gather(*calls):
                        assert late.is_error and "in time" in late.content[0].text
                    assert time.monotonic() - started < 1.9, "calls wait beside each other"
                found = await agent.call_tool("search", {"query": "how do bees find home", "top_k": 1})
                assert found.structured_content["hits"][0]["id"] == "bees"

    with SlowPeer(int(service.rpartition(":")[2])) as peer:
        asyncio.run(test(peer))


@pytest.mark.parametrize(
    ("value", "copied"),
    [
        ("abc", "abc"),
        ("x" * 50, "x" * 10),
        ({"a": ["12345", "12345"], "b": "12345678"}, {"a": ["12345", "12345"], "b": "12345678"}),
        (["x" * 10] * 9, ["x" * 10] * 3),
        ({f"name{n}": "x" * 10 for n in range(9)}, {"name0": "x" * 10, "name1": "x" * 10}),
        ([1] * 100, [1] * 4),
    ],
)
def test_an_excerpt_is_the_beginning_of_a_value(value: Any, copied: Any) -> None:
    excerpt = Excerpt(30, 10)
    found = excerpt.copy(value)
    assert json.dumps(found).startswith(json.dumps(copied)[:-1])
    assert len(json.dumps(found)) < 80
    assert excerpt.is_cut == (found != value)


def test_a_document_does_not_fill_an_agents_context(toy_model: Path, tmp_path: Path) -> None:
    wide = {f"k{key}": "v" * 500 for key in range(400)}
    huge_text = {"title": "T" * 200_000, "text": "zebra " + "x" * 200_000, "wide": wide}
    documents = [{"_id": f"huge/{number}", **huge_text} for number in range(4)]
    documents.append({"_id": "small", "title": "A zebra", "text": "A zebra in the zoo.", "lang": "en"})
    root = made(toy_model, write(tmp_path / "huge.jsonl", documents), tmp_path / "index", index="flat")
    calls: Calls = [("search", {"query": "zebra"})]
    calls += [("get_document", {"id": name}) for name in ("huge/0", "small")]
    with serving(root.path, "--workers", "1") as running:
        found, huge, small = (each.structured_content for each in answers_of(running.url, calls))
    assert len(found["hits"]) == 5
    assert len(json.dumps(found)) < 2 * MOST_HIT_CHARACTERS
    for hit in found["hits"]:
        assert 0 < len(hit["title"]) <= MOST_CHARACTERS and 0 < len(hit["text"]) <= MOST_CHARACTERS
        assert hit.get("truncated", False) == hit["id"].startswith("huge")
    assert huge["truncated"] and len(json.dumps(huge)) < 2 * MOST_DOCUMENT_CHARACTERS
    fields = {"title": ["A zebra"], "text": ["A zebra in the zoo."]}
    assert small == {"id": "small", "fields": fields, "metadata": {"lang": "en"}}


# Arguments that nobody should send: each is an error with a reason, or bounded, and the next call is answered.

LONG_FILTER = {"or": [{"field": "lang", "eq": "en"}] * 3_000}
REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("get_document", {"id": "../healthz"}, r"cannot be part of a path"),
    ("get_document", {"id": "a/../../info"}, r"without parts '.' and '..'"),
    ("get_document", {"id": ""}, "id"),
    ("get_document", {"id": "x?y#z%2e"}, "404 document_not_found"),
    ("get_document", {"id": "x" * 100_000}, "cannot be part of a path"),
    ("get_document", {"id": ["owls"]}, "valid string"),
    ("get_document", {}, "required"),
    ("search", {"query": ""}, "the query is empty"),
    ("search", {"query": "a" * 1_000_000}, "413 body_too_large"),
    ("search", {"query": "\0\x1b[31m"}, "NUL character"),
    ("search", {"query": "bees", "top_k": "many"}, "valid integer"),
    ("search", {"query": "bees", "filter": {"field": "nobody", "eq": 1}}, "no field 'nobody'"),
    ("search", {"query": "bees", "filter": {"__proto__": {}}}, "no field '__proto__'"),
    ("search", {"query": "bees", "filter": LONG_FILTER}, "413 body_too_large"),
    ("facets", {"fields": ["lang\0"]}, "no field"),
    ("facets", {"fields": ["lang"] * 10_000}, "413 body_too_large"),
    ("nobody", {}, "Unknown tool"),
)
TAKEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("search", {"query": "bees", "top_k": 10**30}),
    ("search", {"query": "bees", "top_k": -(10**30)}),
    ("facets", {"fields": ["lang"], "limit": -5}),
    ("facets", {"fields": []}),
    ("get_document", {"id": "owls"}),
)


def test_hostile_arguments_are_refused_with_a_reason_or_bounded(service: str) -> None:
    answers = answers_of(service, [(name, arguments) for name, arguments, _ in REFUSED] + [*TAKEN])
    for (name, arguments, reason), answer in zip(REFUSED, answers, strict=False):
        told = answer.content[0].text
        assert answer.is_error, (name, str(arguments)[:80])
        assert reason in told and told != f"Error executing tool {name}", (str(arguments)[:80], told)
        assert "Traceback" not in told and str(ROOT) not in told
    assert not [answer for answer in answers[len(REFUSED) :] if answer.is_error]
    assert answers[-1].structured_content["id"] == "owls"


def nested(depth: int) -> str:
    """A filter of so many levels, as text: Python would not write it."""
    return '{"and":[' * depth + '{"field":"lang","eq":"en"}' + "]}" * depth


def call(number: int, arguments: str, name: str = "search") -> str:
    """A line of the protocol, its arguments as they are given."""
    return f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}}}'


RAW = (
    call(10, r'{"query":"\ud800 alone"}'),
    call(11, r'{"query":"x","filter":{"field":"\udfff","eq":"\ud800"}}'),
    call(12, f'{{"query":"bees","filter":{nested(300)}}}'),
    call(13, f'{{"query":"bees","filter":{nested(100_000)}}}'),
    call(14, '{"query":"bees","top_k":1e400}'),
    call(15, '{"query":"bees","top_k":NaN}'),
    call(16, '{"query":"bees","query":"owls"}'),
    '{"jsonrpc":"2.0","id":17,"method":"tools/call","params":null}',
    '{"jsonrpc":"2.0","id":{"a":1},"method":"tools/call","params":[]}',
    '[{"jsonrpc":"2.0"}]',
    '{"jsonrpc":"1.0","id":18,"method":"no/such"}',
    "{",
    "\\x00\\xff",
    "null",
)


class Agent:
    """`glow mcp` with its standard input and output as pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self, number: int) -> dict[str, Any]:
        """The answer with a number; those before it are passed over."""
        timer = threading.Timer(30, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                if (found := json.loads(line)).get("id") == number:
                    return found
        finally:
            timer.cancel()
        raise AssertionError(f"no answer to {number}")


@pytest.fixture(scope="module")
def agent(service: str) -> Iterator[Agent]:
    """After the greeting."""
    command = [sys.executable, "-m", "glow", "mcp", "--url", service]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    client = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    greeting = {"protocolVersion": "2025-06-18", **client}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        agent = Agent(process)
        agent.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}))
        assert agent.answer(1)["result"]["serverInfo"]["name"] == "glow"
        agent.send('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        yield agent
        process.stdin.close()
        process.wait(20)


@pytest.mark.parametrize("number", range(len(RAW)))
def test_a_line_that_the_protocol_cannot_hold_does_not_end_the_server(agent: Agent, number: int) -> None:
    agent.send(RAW[number])
    agent.send(call(100 + number, '{"id":"owls"}', "get_document"))
    assert agent.answer(100 + number)["result"]["structuredContent"]["id"] == "owls"
