"""Commands whose optional packages are missing: they offer help and completion only.

`commands.json` contains the help of every command; `python -m scripts.reference` writes it.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import typer.core

__all__ = ["HELP_FILE", "HELP_WIDTH", "OfflineCommand", "help_of"]

HELP_FILE, HELP_WIDTH = "commands.json", 100
FLAG = re.compile(r"^ {2}(--[a-z-]+)(?: / (--[a-z-]+))?", re.MULTILINE)


@cache
def _texts() -> dict[str, str]:
    found: dict[str, str] = json.loads(files(__package__).joinpath(HELP_FILE).read_text(encoding="utf-8"))
    return found


def help_of(name: str) -> str:
    """The output of `glow NAME --help`."""
    return _texts()[name]


class OfflineCommand(typer.core.TyperCommand):
    """A command with flags and help that refuses to run.

    Args:
        name: name of the command.
        refuse: called in place of the command; it reports what is missing, and exits.
    """

    def __init__(self, name: str, refuse: Callable[[], None]) -> None:
        self._refuse = refuse
        flags = [flag for pair in FLAG.findall(help_of(name)) for flag in pair if flag and flag != "--help"]
        options = [
            typer.core.TyperOption(type_descriptor=str, param_decls=[flag])  # type: ignore[arg-type]
            for flag in flags
        ]
        super().__init__(name=name, params=[*options])

    def get_help(self, ctx: Any) -> str:
        """The text of `commands.json`."""
        return help_of(str(self.name)).rstrip("\n")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses to run, except for help and completion."""
        if "--help" not in args and not ctx.resilient_parsing:
            self._refuse()
        return super().parse_args(ctx, args)
