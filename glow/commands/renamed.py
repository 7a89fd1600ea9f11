"""Names of before, which still work until 0.3: the one table of them, and the command that reads them."""

import os
from collections.abc import MutableMapping, Sequence
from typing import Any

import typer.core

from glow.commands.outcome import say_error

__all__ = [
    "RENAMED_COMMANDS", "RENAMED_FLAGS", "RENAMED_SETTINGS", "Command", "rename_variables", "renamed",
    "renamed_command",
]  # fmt: skip

RENAMED_COMMANDS = {"learn": "learn-clicks", "synthesise": "synthesize"}
RENAMED_SETTINGS = {
    "query_log_share": "query_log_sample_rate",
    "otel_share": "otel_sample_rate",
    "shadow_share": "shadow_sample_rate",
    "watch_s": "poll_interval_s",
    "store_token": "vector_store_token",
    "store_timeout_ms": "vector_store_timeout_ms",
}
"""Settings and variables (`GLOW_QUERY_LOG_SHARE`)."""

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
    "--watch-s": "--poll-interval-s",
    "--least-users": "--min-users",
    "--least-rate": "--min-ctr",
    "--least-share": "--min-relative-ctr",
    "--least-dwell": "--min-dwell-s",
    "--most-rank": "--max-rank",
    "--most-clicks": "--max-clicks-per-day",
    "--most-clicks-in-all": "--max-clicks-total",
    "--query-log-share": "--query-log-sample-rate",
    "--otel-share": "--otel-sample-rate",
    "--shadow-share": "--shadow-sample-rate",
    "--store": "--vector-store",
    "--impacts": "--postings",
    "--from": "--min-rank",
    "--to": "--max-rank",
    "--synthesise": "--synthesize",
    "--share": "--rerank-weight",
}
"""Flag of before -> flag of today, in every command that has the second and not the first."""


class Command(typer.core.TyperCommand):
    """A command that also takes flags and variables of before."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments, with today's flags in place of those of before."""
        rename_variables(os.environ)
        known = {flag for parameter in self.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        return super().parse_args(ctx, renamed(args, known))


RENAMED_VALUES = {("--postings", "packed"): "compressed"}


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
            argument = _reported(flag, new) + equals + RENAMED_VALUES.get((new, value), value)
        elif found:
            argument = RENAMED_VALUES.get((found[-1], argument), argument)
        found.append(argument)
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
