"""Writes and publishes a second version again and again, each time dying at another step; writes what is left, as JSON."""

import json
import sys
from pathlib import Path

from glow.artifact import IndexRoot, write_artifact
from tests.death import DEATH, arm, in_child


def make(root: IndexRoot, version: str) -> None:
    with write_artifact(root.path / version, "index") as writer:
        (writer.folder / "vectors.bin").write_text(version * 1000)
    root.publish(version)


def die_at(folder: Path, moment: int) -> dict[str, object]:
    root = IndexRoot(folder / str(moment))
    make(root, "v1")

    def work() -> None:
        arm(moment, ("rename", "replace", "fsync"))
        make(root, "v2")

    died = in_child(work) == DEATH
    return {"moment": moment, "root": str(root.path), "died": died, "live": root.current()}


states: list[dict[str, object]] = []
while (state := die_at(Path(sys.argv[1]), len(states)))["died"]:
    states.append(state)
sys.stdout.write(json.dumps(states))
