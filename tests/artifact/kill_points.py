"""Writes and publishes a second version again and again, each time dying at another step: `kill_points.py FOLDER`.

Runs in a process of its own, without threads, so that it can fork. Writes one JSON list to standard output.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from glow.artifact import IndexRoot, write_artifact

STEPS = ("rename", "replace", "fsync")
DEATH = 77


def make(root: IndexRoot, version: str) -> None:
    with write_artifact(root.path / version, "index") as writer:
        (writer.folder / "vectors.bin").write_text(version * 1000)
    root.publish(version)


def arm(deadly: int) -> list[str]:
    """Makes the process die at moment `deadly`: 2n is before step n, 2n + 1 after it; -1 never."""
    moments: list[str] = []

    def watched(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            moments.append(f"before {name}")
            if len(moments) - 1 == deadly:
                os._exit(DEATH)
            result = function(*arguments, **options)
            moments.append(f"after {name}")
            if len(moments) - 1 == deadly:
                os._exit(DEATH)
            return result

        return call

    for name in STEPS:
        setattr(os, name, watched(name, getattr(os, name)))
    return moments


def die_at(folder: Path, moment: int) -> dict[str, object]:
    root = IndexRoot(folder / str(moment))
    make(root, "v1")
    child = os.fork()
    if child == 0:
        arm(moment)
        make(root, "v2")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    died = os.waitstatus_to_exitcode(status) == DEATH
    return {"moment": moment, "root": str(root.path), "died": died, "live": root.current()}


def main() -> None:
    folder = Path(sys.argv[1])
    states = []
    while (state := die_at(folder, len(states)))["died"]:
        states.append(state)
    sys.stdout.write(json.dumps(states))


main()
