"""Damages every file of a model and of an index again and again: each time it must be refused by name.

    python -m tests.lifecycle.damage --index-root INDEX_ROOT --count 500

One bit, one block of zeros, a cut or a longer tail, at a seeded place of a seeded file, on a copy. The folder is then opened as a
service opens it. What counts as a failure: it opens, the message does not name the file, the error is none of ours, or the
process dies (its exit status says so). Writes one JSON line with the counts; exit status 1 where anything failed.
"""

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from glow.artifact import IndexRoot, default_model
from glow.errors import ArtifactError
from glow.index import Index
from glow.runtime import Model

BLOCK = 512


@contextmanager
def damaged(path: Path, how: str, chance: random.Random) -> Iterator[bool]:
    """Damages a file for a block and mends it after; false where that damage changes nothing."""
    original = path.read_bytes()
    size = len(original)
    place = chance.randrange(size) if size else 0
    if how == "flip" and size:
        changed = bytearray(original)
        changed[place] ^= 1 << chance.randrange(8)
    elif how == "zeros" and size:
        changed = bytearray(original)
        changed[place : place + BLOCK] = bytes(len(changed[place : place + BLOCK]))
    elif how == "cut" and size:
        changed = bytearray(original[:place])
    else:
        changed = bytearray(original + chance.randbytes(1 + place % BLOCK))
    path.write_bytes(changed)
    try:
        yield bytes(changed) != original
    finally:
        path.write_bytes(original)


def fault(open_it: Callable[[], object], name: str) -> str | None:
    """What is wrong with how damage to a file was met; None where it was refused by name."""
    try:
        open_it()
    except ArtifactError as error:
        return None if name in str(error) else f"does not name {name}: {error}"
    except Exception as error:
        return f"not an error of ours: {type(error).__name__}: {error}"
    return "it was opened"


def main(
    index_root: Annotated[Path, typer.Option(help="Index root; its live version is copied.")],
    model: Annotated[Path | None, typer.Option(help="Model folder; default: models/DEFAULT's.")] = None,
    count: Annotated[int, typer.Option(help="Damages.")] = 500,
    seed: Annotated[int, typer.Option(help="Of files, places and kinds.")] = 0,
) -> None:
    """Damages, opens, mends."""
    chance = random.Random(seed)  # noqa: S311 - chooses what to break, keeps no secret
    source = IndexRoot(index_root)
    model = model or default_model()
    kinds: Counter[str] = Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        index = shutil.copytree(source.folder(source.current()), Path(scratch) / source.current())
        copy = shutil.copytree(model, Path(scratch) / "models" / model.name)
        opened: list[tuple[Path, Callable[[], object]]] = [
            (index, lambda: Index.open(index)),
            (copy, lambda: Model.open(copy)),
        ]
        places = [
            (folder / name, name, open_it)
            for folder, open_it in opened
            for name in ("manifest.json", *json.loads((folder / "manifest.json").read_bytes())["files"])
        ]
        while sum(kinds.values()) < count:
            path, name, open_it = chance.choice(places)
            how = chance.choice(("flip", "flip", "zeros", "cut", "longer"))
            with damaged(path, how, chance) as differs:
                if not differs:
                    continue
                kinds[how] += 1
                if found := fault(open_it, name):
                    faults.append(f"{how} in {name}: {found}")
        for _, open_it in opened:
            open_it()  # mended, it is sound: what was refused was refused for the damage
    typer.echo(json.dumps({"damages": count, "kinds": dict(kinds), "files": len(places), "faults": faults}))
    raise typer.Exit(1 if faults else 0)


if __name__ == "__main__":
    typer.run(main)
