"""Runs commands on small index roots, each time dying at another step, and writes what is left, as JSON: `kill_points FOLDER`."""

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glow.artifact import IndexRoot, verify, write_artifact
from glow.errors import ArtifactError
from glow_index_builder.versions.gc import collect
from tests.death import DEATH, arm, in_child

STEPS = ("rename", "replace", "fsync", "unlink", "rmdir", "mkdir")
LATER = time.time() + 7200.0
Work = Callable[[IndexRoot], object]


def count_moments(work: Callable[[], object], note: Path) -> int:
    def whole() -> None:
        moments = arm(-1, STEPS)
        work()
        note.write_text(str(len(moments)))

    assert in_child(whole) == 0
    return int(note.read_text())


def dies(work: Callable[[], object], moment: int) -> bool:
    def armed() -> None:
        arm(moment, STEPS)
        work()

    return in_child(armed) == DEATH


def made_root(path: Path) -> IndexRoot:
    """v1 to v4; v3 is live, v2 was before; v4 was never."""
    root = IndexRoot(path)
    for version in ("v1", "v2", "v3", "v4"):
        with write_artifact(path / version, "index") as writer:
            (writer.folder / "part").mkdir()
            (writer.folder / "part" / "vectors.bin").write_text(version * 100)
    for version in ("v2", "v3"):
        root.publish(version)
    return root


def faults(root: IndexRoot) -> list[str]:
    found = []
    for version in root.versions():
        try:
            verify(root.folder(version), "index")
        except ArtifactError as error:
            found.append(str(error))
    return found


def versions(folder: Path) -> list[dict[str, Any]]:
    """Six moments of each command; the crash matrix of tests/lifecycle has them all."""
    commands: dict[str, Work] = {
        "gc": lambda root: collect(root, 2, now=LATER),
        "rollback": lambda root: root.rollback(),
        "publish": lambda root: root.publish("v4"),
        "pin": lambda root: root.pin("v1"),
        "amend": lambda root: root.amend("v4", {"gate": {"status": "passed"}}),
    }
    states, chance = [], random.Random(0)  # noqa: S311 - chooses where to die
    for command, work in commands.items():
        whole = made_root(folder / f"{command}-whole")
        count = count_moments(lambda work=work, whole=whole: work(whole), folder / "moments")
        for moment in sorted(chance.sample(range(count), min(6, count))):
            root = made_root(folder / f"{command}-{moment}")
            died = dies(lambda work=work, root=root: work(root), moment)
            known = {
                "command": command,
                "moment": f"{moment} of {count}",
                "root": str(root.path),
                "died": died,
            }
            states.append({**known, "live": root.current(), "damaged": faults(root)})
            states[-1]["again"] = in_child(lambda work=work, root=root: work(root))
    return states


if __name__ == "__main__":
    sys.stdout.write(json.dumps(versions(Path(sys.argv[1]))))
