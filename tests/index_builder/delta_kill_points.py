"""Changes a copy of an index again and again, each time dying at another step: `delta_kill_points ROOT MODEL FOLDER`."""

import io
import json
import random
import shutil
import sys
from pathlib import Path

from glow.artifact import IndexRoot, verify
from glow_index_builder.deltas.compaction import compact
from glow_index_builder.deltas.plan import CompactOptions, DeleteOptions, UpsertOptions
from glow_index_builder.deltas.upsert import delete, upsert
from glow_index_builder.open_version import OpenVersion
from glow_index_builder.progress import Stages
from tests.death import DEATH, arm, in_child

STEPS = ("rename", "replace", "fsync", "link")
SAMPLED = 2


def run(command: str, root: Path, model: Path, folder: Path) -> None:
    stages = Stages(io.StringIO())
    if command == "upsert":
        upsert(UpsertOptions(index_root=root, source=str(folder / "new.jsonl"), model=model), stages)
    elif command == "delete":
        delete(DeleteOptions(index_root=root, source=str(folder / "ids")), stages)
    else:
        compact(CompactOptions(index_root=root), stages)


def moments_of(command: str, root: Path, model: Path, folder: Path) -> list[str]:
    """What a whole run comes past."""

    def work() -> None:
        moments = arm(-1, STEPS)
        run(command, root, model, folder)
        (folder / "moments.json").write_text(json.dumps(moments))

    assert in_child(work) == 0
    return list(json.loads((folder / "moments.json").read_text()))


def state(root: Path) -> dict[str, object]:
    """What is live, every byte of it compared, and the ids it has."""
    index = IndexRoot(root)
    verify(index.folder(index.current()), "index")
    live = OpenVersion.open(index)
    ids = sorted(document.id for document in live.documents.scan())
    return {"ids": ids, "has_delta": live.delta is not None, "version": index.current()}


def main() -> None:
    start, model, folder = (Path(argument) for argument in sys.argv[1:])
    states = []
    for command in ("upsert", "delete", "compact"):
        whole = folder / f"{command}-whole"
        shutil.copytree(start, whole)
        before = state(whole)
        moments = moments_of(command, whole, model, folder)
        after = state(whole)
        rare = [place for place, name in enumerate(moments) if name.split()[1] in ("rename", "replace")]
        others = sorted(set(range(len(moments))) - set(rare))
        chosen = sorted([*rare, *random.Random(0).sample(others, SAMPLED)])  # noqa: S311 - test data
        for moment in chosen:
            root = folder / f"{command}-{moment}"
            shutil.copytree(start, root)

            def work(command: str = command, moment: int = moment, root: Path = root) -> None:
                arm(moment, STEPS)
                run(command, root, model, folder)

            died = in_child(work) == DEATH
            found = state(root)
            if moment == rare[0]:  # once for each command: it takes as long as all the rest
                assert in_child(lambda command=command, root=root: run(command, root, model, folder)) == 0
            again = state(root) if moment == rare[0] else None
            known = {"command": command, "moment": moments[moment], "before": before, "after": after}
            states.append({**known, "died": died, "found": found, "again": again})
        start = whole
    sys.stdout.write(json.dumps(states))


main()
