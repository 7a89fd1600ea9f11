"""Made documents, and an index of them."""

import io
import json
from pathlib import Path
from typing import Any

from glow.artifact import IndexRoot
from glow.index import Index
from glow_index_builder.building.builder import build
from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.plan import CompactOptions, DeleteOptions, UpsertOptions
from glow_index_builder.deltas.upsert import delete, upsert
from glow_index_builder.options import BuildOptions
from glow_index_builder.progress import Stages

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


def stages() -> Stages:
    return Stages(io.StringIO())


def made(model: Path, source: Path, output: Path, **options: Any) -> IndexRoot:
    """Builds and publishes an index; documents are not split by default."""
    given: dict[str, Any] = {"threads": 1, "passages": False, **options}
    build(BuildOptions(model=model, source=str(source), index_root=output, **given), stages())
    return IndexRoot(output)


def upserted(root: IndexRoot, model: Path, records: list[dict[str, Any]]) -> None:
    source = write(root.path.with_name("upserts.jsonl"), records)
    upsert(UpsertOptions(index_root=root.path, source=str(source), model=model, threads=1), stages())


def deleted(root: IndexRoot, *ids: str) -> None:
    (source := root.path.with_name("deletes.txt")).write_text("".join(f"{each}\n" for each in ids))
    delete(DeleteOptions(index_root=root.path, source=str(source)), stages())


def compacted(root: IndexRoot) -> dict[str, Any]:
    """Its report."""
    return compact(CompactOptions(index_root=root.path, threads=1), stages())


def opened(root: IndexRoot) -> Index:
    """The live version."""
    return Index.open(root.folder(root.current()))


def live(folder: Path) -> Index:
    """The live version of an index."""
    return opened(IndexRoot(folder))
