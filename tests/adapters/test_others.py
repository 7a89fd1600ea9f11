"""LlamaIndex with its real packages, stores, and the programs of the page, against a running service."""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from glow.adapters import GlowStore
from glow.adapters.llama_index import GlowLlamaRetriever, add_nodes, delete_nodes
from glow.artifact import default_model
from glow.errors import ConfigError
from tests.attacks.harness import ROOT, serving
from tests.made_index import made


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


# The programs of docs/client.md.

PAGE = ROOT / "docs" / "client.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the documents that the pages name."""
    source = PAGE.parent / "examples" / "documents.jsonl"
    with serving(made(default_model(), source, tmp_path_factory.mktemp("index")).path) as running:
        yield running.url


def test_the_programs_of_the_page_find(examples: str, capsys: pytest.CaptureFixture[str]) -> None:
    programs = [program for program in PROGRAMS if "glow.adapters" in program]
    assert len(programs) == 3
    for program in programs:
        assert "http://127.0.0.1:8080" in program
        exec(program.replace("http://127.0.0.1:8080", examples), {})  # noqa: S102 - our own page
        assert capsys.readouterr().out.startswith("['How bees find home'")
