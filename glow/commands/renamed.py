"""Flags of before, which still work until 0.3: the one table of them, and the command that reads them."""

from collections.abc import Sequence
from typing import Any

import typer.core

from glow.commands.outcome import say_error

__all__ = ["RENAMED_FLAGS", "Command", "renamed"]

RENAMED_FLAGS = {
    "--output": "--index-root",
    "--map": "--rename-field",
    "--shard-documents": "--encode-batch-documents",
    "--max-reject-share": "--max-reject-ratio",
    "--max-delta-share": "--max-delta-ratio",
    "--compact-share": "--compact-threshold",
    "--learned-budget": "--expansion-terms",
    "--learned-words": "--expansion-vocabulary",
    "--every": "--poll-interval-s",
    "--least-users": "--min-users",
    "--least-rate": "--min-ctr",
    "--least-share": "--min-relative-ctr",
    "--least-dwell": "--min-dwell-s",
    "--most-rank": "--max-rank",
    "--most-clicks": "--max-clicks-per-day",
    "--most-clicks-in-all": "--max-clicks-total",
}
"""Flag of before -> flag of today, in every command that has the second and not the first."""


class Command(typer.core.TyperCommand):
    """A command that also takes the flags of before."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments, with today's flags in place of those of before."""
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
            say_error(f"{flag} is called {new} now; the old name goes in 0.3")
            argument = new + equals + value
        found.append(argument)
    return found
