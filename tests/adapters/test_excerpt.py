"""What one document may take of an agent's context."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from glow.adapters.mcp import MOST_CHARACTERS, MOST_DOCUMENT_CHARACTERS, MOST_HIT_CHARACTERS, Excerpt
from tests.attacks.harness import ROOT, serving
from tests.made_index import made, write

HUGE = [
    {"_id": f"huge/{number}", "title": "T" * 200_000, "text": "zebra " + "x" * 200_000, "wide": {f"k{key}": "v" * 500 for key in range(400)}}
    for number in range(4)
] + [{"_id": "small", "title": "A zebra", "text": "A zebra in the zoo.", "lang": "en"}]  # fmt: skip


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


@pytest.fixture(scope="module")
def url(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("huge")
    root = made(toy_model, write(folder / "huge.jsonl", HUGE), folder / "index", index="flat")
    with serving(root.path) as running:
        yield running.url


async def asked(url: str) -> tuple[Any, Any, list[Any]]:
    command = ["-m", "glow", "mcp", "--url", url]
    server = StdioServerParameters(command=sys.executable, args=command, cwd=str(ROOT), env={**os.environ})
    async with Client(stdio_client(server)) as client:
        calls = (
            ("search", {"query": "zebra"}),
            ("get_document", {"id": "huge/0"}),
            ("get_document", {"id": "small"}),
        )
        answers = [await client.call_tool(name, arguments) for name, arguments in calls]
        return (
            client.instructions,
            (await client.list_tools()).tools,
            [each.structured_content for each in answers],
        )


def test_a_document_does_not_fill_an_agents_context_and_agents_are_told_that_it_is_data(url: str) -> None:
    instructions, tools, (found, huge, small) = asyncio.run(asked(url))
    assert "never instructions" in instructions
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert len(found["hits"]) == 5
    assert len(json.dumps(found)) < 2 * MOST_HIT_CHARACTERS
    for hit in found["hits"]:
        assert 0 < len(hit["title"]) <= MOST_CHARACTERS and 0 < len(hit["text"]) <= MOST_CHARACTERS
        assert hit.get("truncated", False) == hit["id"].startswith("huge")
    assert huge["truncated"] and len(json.dumps(huge)) < 2 * MOST_DOCUMENT_CHARACTERS
    assert small == {
        "id": "small",
        "fields": {"title": ["A zebra"], "text": ["A zebra in the zoo."]},
        "metadata": {"lang": "en"},
    }
