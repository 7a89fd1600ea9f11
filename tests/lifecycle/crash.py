"""Kills commands that change an index root, at every kind of moment, and looks at what is left.

    OMP_NUM_THREADS=1 python -m tests.lifecycle.crash --runs 200

Each run copies a small root, starts one command in a process of its own and kills it with SIGKILL: half of the runs before or after
a seeded one of its renames, links, removals and syncs, every second of them among the last, the others at a seeded instant. Then, in fresh processes: every version
that can be seen must be whole, the live one must open and hold exactly the documents from before the command or from after it, a
search must find only these, and the same command, run again, must end as it does when nobody kills it. Writes one JSON line;
exit status 1 where anything failed.
"""

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
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.lifecycle.worlds import COMMANDS, Command, contents, make_worlds, run_command

STEPS = ("rename", "replace", "link", "unlink", "rmdir", "fsync", "mkdir")
PATIENCE_S = 120
LAST = 12
"""Moments at the end of a command, in which what it made goes live."""


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


def armed(work: Callable[[], Any], deadly: int) -> Callable[[], Any]:
    """`work`, whose process dies at moment `deadly`: 2n is before step n, 2n + 1 after it. Returns how many there were."""

    def call() -> Any:
        moments = 0

        def watched(function: Any) -> Any:
            def step(*arguments: Any, **options: Any) -> Any:
                nonlocal moments
                for before in (True, False):
                    if moments == deadly:
                        os.kill(os.getpid(), signal.SIGKILL)
                    moments += 1
                    if before:
                        result = function(*arguments, **options)
                return result

            return step

        for name in STEPS:
            setattr(os, name, watched(getattr(os, name)))
        outcome = work()
        return {"moments": moments, "outcome": outcome}

    return call


def one_run(command: Command, world: Path, folder: Path, chance: random.Random, cost: dict[str, Any]) -> str:
    """Kills one command in a copy of a world; returns which documents are live after it."""
    root = Path(shutil.copytree(world / "root", folder / "root"))

    def work() -> Any:
        return run_command(command, root, world)

    if chance.random() < 0.5:
        count = cost["moments"]
        moment = chance.choice([chance.randrange(count), count - 1 - chance.randrange(min(count, LAST))])
        code, answer = forked(armed(work, moment))
        at = f"moment {moment}"
    else:
        delay = chance.random() * cost["seconds"]
        code, answer = forked(work, delay)
        at = f"{delay:.2f} s"
    found = checked(root, command, f"{command.name} killed at {at} ({code}, {answer})")
    if found == "old" or cost["old"] == cost["new"]:
        again = forked(work)[1]
        assert again == {"exit": 0} or command.name == "gc", (
            f"{command.name}, killed at {at}: again gave {again}"
        )
        end = forked(lambda: contents(root))[1]
        assert end["documents"] == cost["new"], (
            f"{command.name}, killed at {at}: run again, it ends otherwise: {end}"
        )
    return found


def checked(root: Path, command: Command, what: str) -> str:
    """`old` or `new`: what is live; anything else is an error."""
    state = forked(lambda: contents(root))[1]
    assert "error" not in state, f"{what}: {state['error']}"
    assert not state["strangers"], f"{what}: hits that are no documents: {state['strangers']}"
    for name in ("old", "new"):
        if state["documents"] == EXPECTED[command.name][name]:
            return name
    raise AssertionError(f"{what}: neither the old documents nor the new ones: {state}")


EXPECTED: dict[str, dict[str, Any]] = {}


def measure(command: Command, world: Path, folder: Path) -> dict[str, Any]:
    """Runs a command to its end: its moments, its seconds, the documents before and after."""
    root = Path(shutil.copytree(world / "root", folder / "root"))
    old = forked(lambda: contents(root))[1]["documents"]
    started = time.monotonic()
    answer = forked(armed(lambda: run_command(command, root, world), -1))[1]
    seconds = time.monotonic() - started
    assert answer.get("outcome") == {"exit": 0}, f"{command.name}: {answer}"
    new = forked(lambda: contents(root))[1]["documents"]
    EXPECTED[command.name] = {"old": old, "new": new}
    return {"moments": answer["moments"], "seconds": seconds, "old": old, "new": new}


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
        costs = {}
        for command in COMMANDS:
            (folder / "cost" / command.name).mkdir(parents=True)
            costs[command.name] = measure(command, folder / command.world, folder / "cost" / command.name)
        for run in range(runs):
            command = COMMANDS[run % len(COMMANDS)]
            place = folder / f"run-{run}"
            place.mkdir()
            try:
                live[one_run(command, folder / command.world, place, chance, costs[command.name])] += 1
            except AssertionError as fault:
                faults.append(str(fault))
            shutil.rmtree(place)
    moments = {name: cost["moments"] for name, cost in costs.items()}
    typer.echo(json.dumps({"runs": runs, "live": dict(live), "moments": moments, "faults": faults}))
    raise typer.Exit(1 if faults else 0)


if __name__ == "__main__":
    typer.run(main)
