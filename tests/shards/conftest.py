"""One corpus as an index and as sets of shards, and what a search of either answers."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glow.artifact import IndexRoot
from glow.search import Index
from glow_index_builder.building import build
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages
from glow_index_builder.sharding import build_set
from glow_service.search import check_search, result_body
from glow_service.settings import Settings
from glow_service.shards import open_session, open_version

SUBJECTS = ("bees", "owls", "coffee beans", "mountain rivers", "steam engines", "foxes", "glaciers", "tea")
ACTS = (
    "find home at night",
    "grow in the shade",
    "are studied by children",
    "move slowly",
    "make a sound",
    "cool in winter",
)
PLACES = ("a forest", "the north", "old towns", "gardens", "the high plateau")
Answer = Callable[..., dict[str, Any]]


def stages() -> Stages:
    """Of which nobody sees anything."""
    return Stages(io.StringIO())


def documents(count: int = 240) -> list[dict[str, Any]]:
    """Documents with equal texts among them, and metadata of every type; a rare field stands in one of them."""
    found = []
    for number in range(count):
        subject, act = SUBJECTS[number % 8], ACTS[number // 3 % 6]
        record: dict[str, Any] = {
            "_id": f"d/{number}",
            "title": f"{subject} {act}",
            "text": f"How {subject} {act} in {PLACES[number // 7 % 5]}. "
            + f"A note on {SUBJECTS[number // 5 % 8]} and number {number % 11}. " * (1 + number % 4),
            "lang": ("en", "de", "fr")[number % 3],
            "year": 2000 + number % 17,
            "day": f"2024-0{1 + number % 9}-1{number % 10}",
            "tags": [f"t{number % 5}", f"t{number % 3}"],
        }
        if number % 4 == 0:
            record["open"] = number % 8 == 0
        if number == 77:
            record["rare"] = "once"
        found.append(record)
    return found


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    """Records as lines of a file."""
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", documents())


def made(model: Path, source: Path, output: Path, shards: int = 1, **options: Any) -> IndexRoot:
    """Builds and publishes an index, or a set."""
    given = BuildOptions(model=model, source=str(source), output=output, threads=1, shards=shards, **options)
    if shards == 1:
        build(given, stages())
    else:
        build_set(given, stages())
    return IndexRoot(output)


@pytest.fixture(scope="session")
def one(toy_model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    """All documents in one index; never change it."""
    return made(toy_model, corpus, tmp_path_factory.mktemp("one") / "index", index="flat")


@pytest.fixture(scope="session")
def four(toy_model: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> IndexRoot:
    """The same in four shards; never change it."""
    return made(toy_model, corpus, tmp_path_factory.mktemp("four") / "index", 4, index="flat")


def opened(root: IndexRoot) -> Index:
    """The live version of a root, its shards in this process."""
    return open_version(root.folder(root.current()))


def answer(index: Index, body: dict[str, Any]) -> dict[str, Any]:
    """What `/search` would answer with, but for what names the version."""
    checked = check_search(body, Settings(index_root=Path("unused")).limits, index)
    found = result_body(index, checked.call, open_session(index, checked.call).run())
    return {name: value for name, value in found.items() if name != "index"}
