"""commands.md and settings.md: the options of every command, and the settings of the service."""

import inspect
import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import SecretStr
from typer.testing import CliRunner

from glow.cli import COMMANDS, GROUPS, HELP_WIDTH, app
from glow.commands import OptionRow, plain
from glow_service import settings
from glow_service.commands import serve
from glow_service.settings import Settings, settings_table
from scripts.reference import code, page, table


def help_texts() -> str:
    """The output of each command's `--help` as JSON, for installations that cannot import the command."""
    runner = CliRunner()
    texts = {
        name: runner.invoke(app, [name, "--help"], prog_name="glow", terminal_width=HELP_WIDTH).output
        for name in COMMANDS
    }
    return json.dumps(texts, indent=1) + "\n"


def commands_page() -> str:
    """Every command with its options."""
    parts = [f"{g}: {', '.join(f'[{v.name}](#glow-{v.name})' for v in vs)}." for g, vs in GROUPS.items()]
    for name, command in COMMANDS.items():
        parts += [f"## glow {name}", command.help, table(("option", "default", "meaning"), _options(name))]
        if name == "serve":
            parts.append("Its other options are the [settings](settings.md).")
    return page("Commands", "Every command of `glow`, with its options.", *parts)


def _options(name: str) -> Iterator[tuple[str, ...]]:
    module, _, attribute = COMMANDS[name].target.partition(":")
    kinds = inspect.signature(getattr(import_module(module), attribute)).parameters
    group: Any = typer.main.get_command(app)
    for each in group.get_command(None, name).params:
        if name == "serve" and each.name in Settings.model_fields:
            continue
        is_argument = each.param_type_name == "argument"
        flags = [each.metavar or each.name.upper()] if is_argument else [*each.opts, *each.secondary_opts]
        meaning = each.help or ""
        if allowed := _choices(kinds[each.name].annotation):
            meaning += f" One of {code(*allowed)}."
        if each.envvar:
            meaning += f" Variable: {code(each.envvar)}."
        yield code(*flags), "required" if each.required else _shown(each.default), meaning


def _shown(value: Any) -> str:
    """A default value in shell syntax."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "on", False: "off"}[value]
    return code(" ".join(map(str, value)) if isinstance(value, list | tuple) else plain(value))


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values of every `Literal` inside a type."""
    values = get_args(annotation)
    if get_origin(annotation) is Literal:
        return values
    return tuple(choice for value in values for choice in _choices(value))


def settings_page() -> str:
    """Every setting of the service."""
    return page(
        "Settings",
        "Every setting of the service, for [`glow serve`](commands.md#glow-serve).",
        table(("variable", "flag", "default", "unit", "range", "meaning"), map(_setting, settings_table())),
        "## How settings are read",
        (settings.__doc__ or "").partition("\n\n")[2].strip(),
        "Settings from files: a TOML file, and one file per secret.",
        f"`--config` or {code(serve.CONFIG_VARIABLE)} names the TOML file.",
    )


def _setting(row: OptionRow) -> tuple[str, ...]:
    flags = [row.flag, f"--no-{row.flag[2:]}"] if row.annotation is bool else [row.flag]
    default = "required" if row.is_required else _shown(row.default) or "empty"
    bounds = [f"{bound:.15g}" for bound in (row.low, row.high) if bound is not None]
    limits = " to ".join(bounds) or code(*_choices(row.annotation))
    variables = [row.env, *([row.env + serve.FILE_SUFFIX] if isinstance(row.default, SecretStr) else [])]
    return code(*variables), code(*flags), default, row.unit, limits, row.help
