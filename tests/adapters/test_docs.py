"""The programs of docs/client.md run as they stand there, against a service."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from glow.artifact import default_model
from tests.attacks.harness import serving
from tests.made_index import made

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
EVERY = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
BLOCKS = [block for block in EVERY if "glow.adapters" in block]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the documents that the pages name."""
    root = made(
        default_model(), PAGE.parent / "examples" / "documents.jsonl", tmp_path_factory.mktemp("index")
    )
    with serving(root.path) as running:
        yield running.url


@pytest.mark.parametrize("place", range(3), ids=["langchain", "llama_index", "haystack"])
def test_a_program_of_the_page_finds(place: int, examples: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) == 3
    program = BLOCKS[place].replace("http://127.0.0.1:8080", examples)
    assert program != BLOCKS[place]
    exec(program, {})  # noqa: S102 - our own page
    assert capsys.readouterr().out.startswith("['How bees find home'")
