"""Runs commands on index roots, each time dying at another step: `kill_versions FOLDER SEED RUNS`."""

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from glow.artifact import IndexRoot, verify, write_artifact
from glow.errors import ArtifactError
from glow_index_builder.versions.gc import collect
from tests.death import arm, in_child

STEPS = ("rename", "replace", "fsync", "unlink", "rmdir", "mkdir")
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


def run(work: Callable[[IndexRoot], object], root: IndexRoot, deadly: int) -> int:
    """Runs it in a child; its exit code."""

    def armed() -> None:
        moments = arm(deadly, STEPS)
        work(IndexRoot(root.path))
        root.path.with_suffix(".moments").write_text(str(len(moments)))

    return in_child(armed)


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
            state = {"command": name, "moment": moment, "of": count, "code": code, "live": live}
            found.append({**state, "damaged": damaged, "again": again, "root": str(root.path)})
    sys.stdout.write(json.dumps(found))


main()
