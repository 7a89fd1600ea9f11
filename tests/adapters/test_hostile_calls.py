"""`glow mcp` with arguments that nobody should send: each is an error with a reason, or bounded, and the next call is answered."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapters.test_others import asked
from tests.attacks.harness import ROOT

LAST = ("get_document", {"id": "owls"})
REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("get_document", {"id": "../healthz"}, r"cannot be part of a path"),
    ("get_document", {"id": "a/../../info"}, r"cannot be part of a path"),
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
    (
        "search",
        {"query": "bees", "filter": {"or": [{"field": "lang", "eq": "en"}] * 3_000}},
        "413 body_too_large",
    ),
    ("facets", {"fields": ["lang\0"]}, "no field"),
    ("facets", {"fields": ["lang"] * 10_000}, "413 body_too_large"),
    ("nobody", {}, "Unknown tool"),
)
TAKEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("search", {"query": "bees", "top_k": 10**30}),
    ("search", {"query": "bees", "top_k": -(10**30)}),
    ("facets", {"fields": ["lang"], "limit": -5}),
    ("facets", {"fields": []}),
)


def test_hostile_arguments_are_refused_with_a_reason_or_bounded(service: str) -> None:
    calls = [(name, arguments) for name, arguments, _ in REFUSED] + [*TAKEN, LAST]
    _, answers = asyncio.run(asked(service, calls))
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


@pytest.fixture(scope="module")
def agent(service: str) -> Iterator[subprocess.Popen[str]]:
    """`glow mcp` after the greeting, with its standard input and output as pipes."""
    command = [sys.executable, "-m", "glow", "mcp", "--url", service]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        greeting = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        send(process, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}))
        assert answered(process, 1)["result"]["serverInfo"]["name"] == "glow"
        send(process, '{"jsonrpc":"2.0","method":"notifications/initialized"}')
        yield process
        process.stdin.close()
        process.wait(20)


def send(process: subprocess.Popen[str], line: str) -> None:
    process.stdin.write(line + "\n")
    process.stdin.flush()


def answered(process: subprocess.Popen[str], number: int) -> dict[str, Any]:
    """The answer with a number; those before it are passed over."""
    timer = threading.Timer(30, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            if (found := json.loads(line)).get("id") == number:
                return found
    finally:
        timer.cancel()
    raise AssertionError(f"no answer to {number}")


@pytest.mark.parametrize("number", range(len(RAW)))
def test_a_line_that_the_protocol_cannot_hold_does_not_end_the_server(
    agent: subprocess.Popen[str], number: int
) -> None:
    send(agent, RAW[number])
    send(agent, call(100 + number, '{"id":"owls"}', "get_document"))
    assert answered(agent, 100 + number)["result"]["structuredContent"]["id"] == "owls"
