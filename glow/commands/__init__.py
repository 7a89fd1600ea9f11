"""The common layer of all commands: options, errors and exit codes, and progress. Packages define the commands."""

from glow.commands.bars import Advance, Show, progress, shown_progress, write_line
from glow.commands.command import IndexRootOptions, JsonOptions, command, package_app
from glow.commands.options import (
    OptionRow,
    describe_faults,
    option,
    plain,
    read_options,
    rows_of,
    with_parameters,
)
from glow.commands.outcome import (
    all_cores,
    fail,
    reporting,
    say,
    say_error,
    write_report,
    write_text,
)

__all__ = [
    "Advance", "IndexRootOptions", "JsonOptions", "OptionRow", "Show", "all_cores", "command",
    "describe_faults", "fail", "option", "package_app", "plain", "progress", "read_options",
    "reporting", "rows_of", "say", "say_error", "shown_progress", "with_parameters", "write_line", "write_report",
    "write_text",
]  # fmt: skip
