"""Kills commands that change an index root, at every kind of moment, and looks at what is left.

    OMP_NUM_THREADS=1 python -m tests.lifecycle.crash --runs 200

Each run copies a small root, starts one command in a process of its own and kills it: three of four before or after a seeded one
of its renames, links, removals and syncs, many of them renames or among the last, the others at a seeded instant. Then, in fresh
processes: every version that can be seen must be whole, the live one must open and hold exactly the documents from before the
command or from after it, a search must find only these, and the same command, run again, must end as it does when nobody kills it.
Writes one JSON line; exit status 1 where anything failed.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from glow.artifact import IndexRoot, verify
from glow.cli import app
from glow.index import Index
from glow.index.learned_sparse import LEARNED_SPARSE
from glow.index.stored_fields import STORED_FIELDS
from glow.index.vectors import VECTORS, SearchParams
from glow.ingest import INGEST_FOLDER, IngestLog
from glow.search import Reranking, rank_dense, rank_lexical, rerank
from tests.death import arm
from tests.program import ROOT

STEPS = ("rename", "replace", "link", "unlink", "rmdir", "fsync", "mkdir")
LAST = 12
"""Moments at the end of a command, in which what it made goes live."""
TOY_MODEL = ROOT / "tests" / "data" / "toy-model"
TOY_RERANKER = ROOT / "tests" / "data" / "toy-reranker"
WORDS = (
    "bees honey find way home sun dance salt water rice bread oven river stone moon night train city".split()
)
EACH = 40
"""Documents of a world."""
ENCODE = "--model {model} --threads 1 --rerank {reranker}"
COMMANDS = {
    "build": ("one", "--input {world}/other.jsonl " + ENCODE),
    "upsert": ("one", "--input {world}/upsert.jsonl --model {model}"),
    "delete": ("delta", "--input {world}/delete.txt"),
    "compact": ("delta", ""),
    "publish": ("two", ""),
    "rollback": ("delta", ""),
    "ingest": ("written", "--once --model {model}"),
    "gc": ("delta", "--keep 1"),
}
"""Name -> the world that it changes, and its options."""


def document(number: int, salt: int) -> dict[str, Any]:
    words = [WORDS[(number * 7 + step * (salt + 3)) % len(WORDS)] for step in range(9)]
    texts = {"title": " ".join(words[:3]), "text": " ".join(words)}
    return {"_id": f"d{number}", **texts, "lang": "en", "salt": salt}


def make_worlds(folder: Path, model: Path | None) -> None:
    """Folders with an index root, its model and input.

    `one`: a live version. `two`: another one, not published. `delta`: a live version with a delta. `written`: as `one`, with
    writes of two services that wait. Without a model they are of the toy model with learned impacts.
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
        for file, first, last, salt in (
            ("first.jsonl", 0, EACH, 0),
            ("other.jsonl", EACH // 2, EACH * 3 // 2, 1),
            ("upsert.jsonl", EACH - 4, EACH + 4, 2),
        ):
            lines = (json.dumps(document(number, salt)) + "\n" for number in range(first, last))
            (world / file).write_text("".join(lines))
        (world / "delete.txt").write_text("".join(f"d{number}\n" for number in range(0, EACH, 5)))
        do(world, "build --input {world}/first.jsonl " + ENCODE)
    for writer in range(2):
        log = IngestLog(folder / "written" / "root" / INGEST_FOLDER, 1 << 30)
        log.append("upsert", documents=[document(number, 3 + writer) for number in range(EACH - 3, EACH + 2)])
        log.append("delete", ids=[f"d{writer}", "nobody"])
        log.close()
    do(folder / "two", "build --no-publish --input {world}/other.jsonl " + ENCODE)
    do(folder / "delta", "upsert --input {world}/upsert.jsonl --model {model}")


def do(world: Path, command: str) -> None:
    done = run_command(command, world / "root", world)
    assert done == {"exit": 0}, done


def run_command(command: str, root: Path, world: Path) -> dict[str, Any]:
    """Runs a command in this process: its exit status, and what it said where that is not 0."""
    places = {"world": world, "model": (world / "model").resolve(), "reranker": TOY_RERANKER}
    given = [each.format(**places) for each in command.split()]
    done = CliRunner().invoke(app, [*given, "--index-root", str(root)])
    return {"exit": done.exit_code} | ({"said": done.output} if done.exit_code else {})


def contents(path: Path) -> dict[str, Any]:
    """What a service would serve from a root: its documents as one hash each, and hits that are none of them.

    Every version that can be seen is verified as well.
    """
    root = IndexRoot(path)
    for version in root.versions():
        verify(root.folder(version), "index")
    index = Index.open(root.folder(root.current()))
    documents = {}
    for each in index[STORED_FIELDS].scan():
        held = repr((sorted(each.fields.items()), sorted(each.metadata.items())))
        documents[each.id] = hashlib.sha256(held.encode()).hexdigest()[:16]
    hits: list[int] = []
    for text in ("how do bees find home", "salt water", "night train"):
        vector = index.encoder.run([index.preprocessor.query(text)])
        _, rows = index[VECTORS].search(vector, 10, SearchParams(exact=True), order=index.order)
        found = [int(row) for row in rows[0] if row >= 0]
        assert len(found) == min(10, len(documents)), f"{len(found)} hits of {len(documents)} documents"
        ranked, is_whole = rerank(index, text, rank_dense(index, vector[0], 10), Reranking(10))
        assert is_whole, "a hit whose term representations are not there"
        assert sorted(ranked.rows.tolist()) == sorted(found)
        hits += found
        if index.holds(LEARNED_SPARSE):
            rows = rank_lexical(index, text, 10, by="learned").rows
            assert len(rows), "no hit by learned impacts"
            hits += rows.tolist()
    strangers = [each.id for each in index[STORED_FIELDS].rows(hits) if each.id not in documents]
    return {"documents": documents, "strangers": strangers}


def forked(work: Callable[[], Any], kill_after_s: float | None = None) -> tuple[int, Any]:
    """Runs `work` in a child: its exit code (negative: the signal that ended it) and what it returned, as JSON.

    This process never starts a thread, so that it can fork.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setpgid(0, 0)
        try:
            answer = json.dumps(work()).encode()
        except BaseException:
            answer = json.dumps({"error": traceback.format_exc()}).encode()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writing)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(answer) if answer else None


@dataclass
class Kills:
    """Kills of one command."""

    command: str
    world: Path
    chance: random.Random

    def __post_init__(self) -> None:
        """Runs it to its end: its moments, its seconds, the documents before and after."""
        with tempfile.TemporaryDirectory() as scratch:
            root = self.copied(Path(scratch))
            self.old = forked(lambda: contents(root))[1]["documents"]
            started = time.monotonic()
            _, answer = forked(lambda: self.run(root, -1))
            self.seconds = time.monotonic() - started
            assert answer.get("outcome") == {"exit": 0}, f"{self.command}: {answer}"
            self.moments: list[str] = answer["moments"]
            self.renames = [
                at for at, name in enumerate(self.moments) if name.endswith(("rename", "replace"))
            ]
            self.new = forked(lambda: contents(root))[1]["documents"]

    def copied(self, folder: Path) -> Path:
        return Path(shutil.copytree(self.world / "root", folder / "root"))

    def run(self, root: Path, deadly: int) -> dict[str, Any]:
        """Dies at a moment; -1: at none."""
        moments = arm(deadly, STEPS)
        outcome = run_command(self.command, root, self.world)
        return {"moments": moments, "outcome": outcome}

    def kill(self, root: Path) -> str:
        """Kills the command once: `old` or `new`, what is live then; anything else is an error."""
        if self.chance.random() < 0.75:
            every = range(len(self.moments))
            moment = self.chance.choice(self.chance.choice([every, every[-LAST:], self.renames or every]))
            code, answer = forked(lambda: self.run(root, moment))
            what = f"{self.command}, killed {self.moments[moment]}, moment {moment} ({code}, {answer})"
        else:
            delay = self.chance.random() * self.seconds
            code, answer = forked(lambda: run_command(self.command, root, self.world), delay)
            what = f"{self.command}, killed at {delay:.2f} s ({code}, {answer})"
        state = forked(lambda: contents(root))[1]
        assert "error" not in state, f"{what}: {state['error']}"
        assert not state["strangers"], f"{what}: hits that are no documents: {state['strangers']}"
        known = {"old": self.old, "new": self.new}
        found = next((name for name, held in known.items() if held == state["documents"]), "")
        assert found, f"{what}: neither the old documents nor the new ones: {state}"
        if found == "old" or self.old == self.new:
            again = forked(lambda: run_command(self.command, root, self.world))[1]
            assert again == {"exit": 0} or self.command.startswith("gc"), f"{what}: again gave {again}"
            end = forked(lambda: contents(root))[1]
            assert end["documents"] == self.new, f"{what}: run again, it ends otherwise: {end}"
        return found


def main(
    runs: Annotated[int, typer.Option(help="Kills, over all commands in turn.")] = 200,
    seed: Annotated[int, typer.Option(help="Of moments and instants.")] = 0,
    model: Annotated[Path | None, typer.Option(help="Model folder; default: the tests' toy model.")] = None,
) -> None:
    """Kills and looks."""
    chance = random.Random(seed)  # noqa: S311 - chooses what to break, keeps no secret
    live: Counter[str] = Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        made = forked(lambda: make_worlds(folder, model))[1]
        assert made is None or "error" not in made, made["error"]
        kills = [Kills(f"{name} {more}", folder / world, chance) for name, (world, more) in COMMANDS.items()]
        for run in range(runs):
            each = kills[run % len(kills)]
            try:
                live[each.kill(each.copied(folder / f"run-{run}"))] += 1
            except AssertionError as fault:
                faults.append(str(fault))
            shutil.rmtree(folder / f"run-{run}")
    moments = {each.command.split()[0]: len(each.moments) for each in kills}
    typer.echo(json.dumps({"runs": runs, "live": dict(live), "moments": moments, "faults": faults}))
    raise typer.Exit(1 if faults else 0)


if __name__ == "__main__":
    typer.run(main)
