"""A command made of two things: a frozen options model, and a function that does the work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import typer
from pydantic import BaseModel

from glow.commands.options import option, read_options, rows_of, with_parameters
from glow.commands.outcome import reporting
from glow.commands.renamed import Command
from glow.options import StrictModel

__all__ = ["IndexRootOptions", "JsonOptions", "command", "package_app"]

O = TypeVar("O", bound=BaseModel)


class JsonOptions(StrictModel):
    """For commands that can write what they did as JSON."""

    json_file: Path | None = option(
        None, "Write the report to this file; - is standard output.", flag="--json", metavar="FILE"
    )


class IndexRootOptions(StrictModel):
    """For commands on the versions of one index."""

    index_root: Path = option(
        ..., "Directory of all versions of an index.", metavar="DIR", env="GLOW_INDEX_ROOT"
    )


def command(model: type[O]) -> Callable[[Callable[[O], None]], Callable[..., None]]:
    """Makes a function of options a command for typer: its flags come from the model, its end from `reporting`.

    Args:
        model: the options; `option` makes their fields.
    """

    def decorate(work: Callable[[O], None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            with reporting(values.get("json_file")):
                work(read_options(model, values))

        run.__name__, run.__doc__, run.__module__ = work.__name__, work.__doc__, work.__module__
        return with_parameters(run, rows_of(model))

    return decorate


def package_app(commands: dict[str, Callable[..., None]], text: str) -> typer.Typer:
    """The application of one room, for `python -m ROOM`.

    Args:
        commands: name -> command.
        text: first line of its help.
    """
    application = typer.Typer(
        help=text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        # Plain tracebacks: a bug's report must not print whole corpora from local variables.
        pretty_exceptions_enable=False,
    )
    for name, function in commands.items():
        application.command(name, cls=Command)(function)
    return application
