"""Small index roots in known states, the commands that change them, and what a root holds."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from glow.artifact import IndexRoot, verify
from glow.cli import app
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS, SearchParams
from glow.ingest import INGEST_FOLDER, IngestLog
from glow.search import Reranking, rank_dense, rank_lexical, rerank

__all__ = ["COMMANDS", "Command", "contents", "make_worlds", "run_command"]

ROOT = Path(__file__).parents[2]
TOY_MODEL = ROOT / "tests" / "data" / "toy-model"
TOY_RERANKER = ROOT / "tests" / "data" / "toy-reranker"
WORDS = (
    "bees honey find way home sun dance salt water rice bread oven river stone moon night train city".split()
)
EACH = 40
"""Documents of a world."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command on one world; `{root}`, `{world}` and `{model}` in its arguments are filled in."""

    name: str
    world: str
    arguments: tuple[str, ...]


COMMANDS = (
    Command(
        "build",
        "one",
        (
            *("build", "--input", "{world}/other.jsonl", "--model", "{model}", "--threads", "1"),
            *("--rerank", "{reranker}", "--index-root", "{root}"),
        ),
    ),
    Command(
        "upsert",
        "one",
        ("upsert", "--input", "{world}/upsert.jsonl", "--model", "{model}", "--index-root", "{root}"),
    ),
    Command("delete", "delta", ("delete", "--input", "{world}/delete.txt", "--index-root", "{root}")),
    Command("compact", "delta", ("compact", "--index-root", "{root}")),
    Command("publish", "two", ("publish", "--index-root", "{root}")),
    Command("rollback", "delta", ("rollback", "--index-root", "{root}")),
    Command("ingest", "written", ("ingest", "--once", "--model", "{model}", "--index-root", "{root}")),
    Command("gc", "delta", ("gc", "--keep", "1", "--index-root", "{root}")),
)


def document(number: int, salt: int) -> dict[str, Any]:
    """Made up, with words of the toy vocabulary."""
    words = [WORDS[(number * 7 + step * (salt + 3)) % len(WORDS)] for step in range(9)]
    return {
        "_id": f"d{number}",
        "title": " ".join(words[:3]),
        "text": " ".join(words),
        "lang": "en",
        "salt": salt,
    }


def make_worlds(folder: Path, model: Path | None) -> None:
    """`one`: a live version. `two`: another one, not published. `delta`: a live version with a delta.

    `written` is as `one`, with writes of two services that wait.

    Without a model they are of the toy model with a head of learned impacts, and have such impacts.
    """
    if model is None:
        from tests.learned_head import add_untrained_head  # torch, which commands must be without

        model = folder / "toy-learned"
        shutil.copytree(TOY_MODEL, model)
        add_untrained_head(model, folder / "checkpoint")
    for name in ("one", "two", "delta", "written"):
        world = folder / name
        world.mkdir()
        (world / "model").symlink_to(model)
        write(world / "first.jsonl", [document(number, 0) for number in range(EACH)])
        write(world / "other.jsonl", [document(number, 1) for number in range(EACH // 2, EACH * 3 // 2)])
        write(world / "upsert.jsonl", [document(number, 2) for number in range(EACH - 4, EACH + 4)])
        (world / "delete.txt").write_text("".join(f"d{number}\n" for number in range(0, EACH, 5)))
        fixed = ("--model", "{model}", "--threads", "1", "--rerank", "{reranker}", "--index-root", "{root}")
        do(world, "build", "--input", "{world}/first.jsonl", *fixed)
    for writer in range(2):
        log = IngestLog(folder / "written" / "root" / INGEST_FOLDER, 1 << 30)
        log.append("upsert", documents=[document(number, 3 + writer) for number in range(EACH - 3, EACH + 2)])
        log.append("delete", ids=[f"d{writer}", "nobody"])
        log.close()
    do(folder / "two", "build", "--no-publish", "--input", "{world}/other.jsonl", *fixed)
    do(
        folder / "delta",
        "upsert",
        "--input",
        "{world}/upsert.jsonl",
        "--model",
        "{model}",
        "--index-root",
        "{root}",
    )


def write(path: Path, documents: list[dict[str, Any]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(each) + "\n" for each in documents))


def do(world: Path, *arguments: str) -> None:
    """Runs a command that must succeed."""
    done = run_command(Command(arguments[0], world.name, arguments), world / "root", world)
    assert done == {"exit": 0}, done


def run_command(command: Command, root: Path, world: Path) -> dict[str, Any]:
    """Runs a command in this process: its exit status, and what it said where that is not 0."""
    model = (world / "model").resolve()
    places = {"root": root, "world": world, "model": model, "reranker": TOY_RERANKER}
    done = CliRunner().invoke(app, [argument.format(**places) for argument in command.arguments])
    return {"exit": done.exit_code} | ({"said": done.output} if done.exit_code else {})


def contents(path: Path) -> dict[str, Any]:
    """What a service would serve from a root: its documents as one hash each, and hits that are none of them.

    Every version that can be seen is verified as well.
    """
    root = IndexRoot(path)
    for version in root.versions():
        verify(root.folder(version), "index")
    index = Index.open(root.folder(root.current()))
    documents = {
        each.id: hashlib.sha256(
            repr((sorted(each.fields.items()), sorted(each.metadata.items()))).encode()
        ).hexdigest()[:16]
        for each in index[STORED_FIELDS].scan()
    }
    strangers = []
    for text in ("how do bees find home", "salt water", "night train"):
        vector = index.encoder.run([index.preprocessor.query(text)])
        _, rows = index[VECTORS].search(vector, 10, SearchParams(exact=True), order=index.order)
        found = [int(row) for row in rows[0] if row >= 0]
        strangers += [each.id for each in index[STORED_FIELDS].rows(found) if each.id not in documents]
        assert len(found) == min(10, len(documents)), f"{len(found)} hits of {len(documents)} documents"
        ranked, is_whole = rerank(index, text, rank_dense(index, vector[0], 10), Reranking(10))
        assert is_whole, "a hit whose term representations are not there"
        assert sorted(ranked.rows.tolist()) == sorted(found)
        if index.holds(LEARNED_SPARSE):
            rows = rank_lexical(index, text, 10, by="learned").rows
            strangers += [
                each.id for each in index[STORED_FIELDS].rows(rows.tolist()) if each.id not in documents
            ]
            assert len(rows), "no hit by learned impacts"
    return {"documents": documents, "strangers": strangers}
