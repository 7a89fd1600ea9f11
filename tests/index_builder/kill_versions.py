"""Runs commands on index roots, each time dying at another step: `kill_versions.py FOLDER SEED RUNS`.

Runs in a process of its own, without threads, so that it can fork. Writes one JSON list to standard output.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glow.artifact import IndexRoot, verify, write_artifact
from glow.errors import ArtifactError
from glow_index_builder.versions.gc import collect

STEPS = ("rename", "replace", "fsync", "unlink", "rmdir", "mkdir")
DEATH = 77
LATER = time.time() + 7200.0


def make(path: Path) -> IndexRoot:
    """v1 to v4; v3 is live, v2 was before; v4 was never."""
    root = IndexRoot(path)
    for version in ("v1", "v2", "v3", "v4"):
        with write_artifact(path / version, "index") as writer:
            (writer.folder / "part").mkdir()
            (writer.folder / "part" / "vectors.bin").write_text(version * 100)
    for version in ("v2", "v3"):
        root.publish(version)
    return root


def commands() -> dict[str, Callable[[IndexRoot], object]]:
    return {
        "gc": lambda root: collect(root, 2, now=LATER),
        "rollback": lambda root: root.rollback(),
        "publish": lambda root: root.publish("v4"),
        "pin": lambda root: root.pin("v1"),
        "amend": lambda root: root.amend("v4", {"gate": {"status": "passed"}}),
    }


def arm(deadly: int) -> list[str]:
    """Makes the process die at moment `deadly`: 2n is before step n, 2n + 1 after it; -1 never."""
    moments: list[str] = []

    def watched(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            for when in ("before", "after"):
                moments.append(f"{when} {name}")
                if len(moments) - 1 == deadly:
                    os._exit(DEATH)
                if when == "before":
                    result = function(*arguments, **options)
            return result

        return call

    for name in STEPS:
        setattr(os, name, watched(name, getattr(os, name)))
    return moments


def run(work: Callable[[IndexRoot], object], root: IndexRoot, deadly: int) -> int:
    """Runs it in a child; its exit code."""
    child = os.fork()
    if child == 0:
        try:
            moments = arm(deadly)
            work(IndexRoot(root.path))
            (root.path.parent / f"{root.path.name}.moments").write_text(str(len(moments)))
        except BaseException as error:
            sys.stderr.write(f"{root.path.name}: {error!r}\n")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def faults(root: IndexRoot) -> list[str]:
    """Versions that can be seen and are not whole."""
    found = []
    for version in root.versions():
        try:
            verify(root.folder(version), "index")
        except ArtifactError as error:
            found.append(str(error))
    return found


def main() -> None:
    folder, runs = Path(sys.argv[1]), int(sys.argv[3])
    chance = random.Random(sys.argv[2])  # noqa: S311 - chooses where to die
    found = []
    works = commands()
    for name, work in works.items():
        whole = make(folder / f"{name}-whole")
        assert run(work, whole, -1) == 0, name
        count = int((folder / f"{name}-whole.moments").read_text())
        for moment in sorted(chance.sample(range(count), min(runs, count))):
            root = make(folder / f"{name}-{moment}")
            code = run(work, root, moment)
            live, damaged = root.current(), faults(root)
            again = run(work, root, -1)
            found.append(
                {
                    "command": name,
                    "moment": moment,
                    "of": count,
                    "code": code,
                    "live": live,
                    "damaged": damaged,
                    "again": again,
                    "root": str(root.path),
                }
            )
    sys.stdout.write(json.dumps(found))


main()
