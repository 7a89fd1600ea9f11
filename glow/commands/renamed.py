"""Commands that also accept earlier names (`glow.renamed`)."""

import os
from collections.abc import MutableMapping, Sequence
from typing import Any

import typer.core

from glow.commands.outcome import say_error
from glow.renamed import RENAMED_COMMANDS, RENAMED_FLAGS, RENAMED_SETTINGS, RENAMED_VALUES

__all__ = ["Command", "rename_variables", "renamed", "renamed_command"]


class Command(typer.core.TyperCommand):
    """A command that also accepts earlier names of flags and variables."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments after replacing earlier flags."""
        rename_variables(os.environ)
        known = {flag for parameter in self.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        return super().parse_args(ctx, renamed(args, known))


def renamed(arguments: Sequence[str], known: set[str]) -> list[str]:
    """Replaces earlier flags by current ones, and reports each on standard error.

    Args:
        arguments: arguments of a command.
        known: flags of the command.
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
    """The current name of a command; an earlier name is reported on standard error."""
    return _reported(name, RENAMED_COMMANDS[name]) if name in RENAMED_COMMANDS else name


def rename_variables(environment: MutableMapping[str, str]) -> None:
    """Renames earlier variables, and reports each on standard error; the current one wins if both are set."""
    for old, new in RENAMED_SETTINGS.items():
        was, now = f"GLOW_{old.upper()}", f"GLOW_{new.upper()}"
        if was in environment:
            environment.setdefault(_reported(was, now), environment.pop(was))


def _reported(old: str, new: str) -> str:
    say_error(f"{old} is now called {new}; the old name will be removed in 0.3")
    return new
