"""`python -m research` lists the studies; `python -m research NAME … [--dry]` runs one, or checks and plans it."""

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import typer

from glow.commands import say


class Study(NamedTuple):
    """A study."""

    page: str  # of the results that it repeats
    text: str  # what it does, in one line


STUDIES = {
    "debian": Study("docs/data.md", "training texts from packages of Debian"),
    "encoders": Study("docs/results/models.md", "glow-mini's training"),
    "links": Study("docs/data.md", "training pairs of link texts and their target sections"),
    "ndrm": Study("docs/papers/conformer-kernel.md", "NDRM1 to NDRM3 of the Conformer-Kernel paper"),
    "prettr": Study("docs/papers/prettr.md", "PreTTR's table by layers apart, beside late interaction"),
    "pretraining": Study("docs/papers/cross-thought.md", "pre-training objectives at equal text"),
    "ranking": Study("docs/results/quality.md", "the probabilities of hybrid search"),
}


def run(arguments: Sequence[str]) -> None:
    """Runs a study by its name and its arguments, with `--dry` anywhere, or lists all."""
    if not arguments:
        for name, study in STUDIES.items():
            say(f"{name:12} {study.text} ({study.page})")
        return
    name, *rest = arguments
    if name not in STUDIES:
        sys.exit(f"no study {name!r}; there are {', '.join(STUDIES)}")
    module = importlib.import_module(f"research.{name}")
    if not hasattr(module, "app"):
        module = importlib.import_module(f"research.{name}.__main__")
    command = typer.main.get_command(module.app)
    if "--dry" in rest:
        _only_tell(command)
    command([each for each in rest if each != "--dry"], f"python -m research {name}")


def _only_tell(command: Any) -> None:
    """Makes every command print its arguments instead of running."""
    for each in getattr(command, "commands", {}).values():
        _only_tell(each)
    if not hasattr(command, "commands"):
        command.callback = lambda **options: say(
            f"{command.name}: {command.help.strip().splitlines()[0]} {options}"
        )


if __name__ == "__main__":
    run(sys.argv[1:])
