"""Commands that also take the names of before (`glow.renamed`)."""

import os
from collections.abc import MutableMapping, Sequence
from typing import Any

import typer.core

from glow.commands.outcome import say_error
from glow.renamed import RENAMED_COMMANDS, RENAMED_FLAGS, RENAMED_SETTINGS, RENAMED_VALUES

__all__ = ["Command", "rename_variables", "renamed", "renamed_command"]


class Command(typer.core.TyperCommand):
    """A command that also takes flags and variables of before."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments, with today's flags in place of those of before."""
        rename_variables(os.environ)
        known = {flag for parameter in self.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        return super().parse_args(ctx, renamed(args, known))


def renamed(arguments: Sequence[str], known: set[str]) -> list[str]:
    """Arguments with today's flags; each flag of before is reported in a line on standard error.

    Args:
        arguments: of a command.
        known: its flags.
    """
    found: list[str] = []
    for place, argument in enumerate(arguments):
        if argument == "--":
            return [*found, *arguments[place:]]
        flag, equals, value = argument.partition("=")
        new = RENAMED_FLAGS.get(flag, "")
        if new in known and flag not in known:
            flag = _reported(flag, new)
        if equals:
            flag += "=" + RENAMED_VALUES.get(flag, {}).get(value, value)
        elif found:
            flag = RENAMED_VALUES.get(found[-1], {}).get(flag, flag)
        found.append(flag)
    return found


def renamed_command(name: str) -> str:
    """Today's name of a command; a name of before is reported in a line on standard error."""
    return _reported(name, RENAMED_COMMANDS[name]) if name in RENAMED_COMMANDS else name


def rename_variables(environment: MutableMapping[str, str]) -> None:
    """Gives variables of before today's names, each reported in a line; today's wins if both are set."""
    for old, new in RENAMED_SETTINGS.items():
        was, now = f"GLOW_{old.upper()}", f"GLOW_{new.upper()}"
        if was in environment:
            environment.setdefault(_reported(was, now), environment.pop(was))


def _reported(old: str, new: str) -> str:
    say_error(f"{old} is called {new} now; the old name goes in 0.3")
    return new
