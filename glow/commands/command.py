"""Makes a command from a frozen options model and a function that does the work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import typer
from pydantic import BaseModel

from glow.commands.options import option, read_options, rows_of, with_parameters
from glow.commands.outcome import reporting
from glow.options import StrictModel

__all__ = ["IndexRootOptions", "JsonOptions", "command", "package_app"]

O = TypeVar("O", bound=BaseModel)


class JsonOptions(StrictModel):
    """Options of commands that can write a JSON report."""

    json_file: Path | None = option(
        None, "Write the report to this file; - is standard output.", flag="--json", metavar="FILE"
    )


class IndexRootOptions(StrictModel):
    """Options of commands on the versions of one index."""

    index_root: Path = option(
        ..., "Directory of all versions of an index.", metavar="DIR", env="GLOW_INDEX_ROOT"
    )


def command(model: type[O]) -> Callable[[Callable[[O], None]], Callable[..., None]]:
    """Makes a typer command of a function of options: the model gives the flags, `reporting` handles errors.

    Args:
        model: the options model; `option` makes its fields.
    """

    def decorate(work: Callable[[O], None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            with reporting(values.get("json_file")):
                work(read_options(model, values))

        run.__name__, run.__doc__, run.__module__ = work.__name__, work.__doc__, work.__module__
        return with_parameters(run, rows_of(model))

    return decorate


def package_app(commands: dict[str, Callable[..., None]], text: str) -> typer.Typer:
    """The command line of one package, for `python -m PACKAGE`.

    Args:
        commands: name -> command.
        text: first line of the help.
    """
    application = typer.Typer(
        help=text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        # Plain tracebacks: rich ones would print local variables, which may hold whole corpora.
        pretty_exceptions_enable=False,
    )
    for name, function in commands.items():
        application.command(name)(function)
    return application
