"""Options of a command as one frozen model, from which flags and documentation are made.

A field `max_rejects` becomes the flag `--max-rejects`, unless `option` sets another. A model may also be read from
environment variables, as the service's settings are.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import annotated_types
import typer
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from glow.errors import ConfigError
from glow.options import option

__all__ = [
    "OptionRow", "describe_faults", "option", "parameters_of", "plain", "read_options", "rows_of",
    "with_parameters",
]  # fmt: skip

O = TypeVar("O", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option of a command, or one setting of the service.

    Attributes:
        name: field of the model.
        flag: command-line flag; a boolean that is on by default also has `--no-…`. "" for an argument.
        env: environment variable; "" for none.
        default: typed value; None if the option is required or has no default.
        unit: unit of the value; "" for none.
        help: one sentence.
        annotation: the value's type.
        metavar: placeholder of the value in the help; "" for its type.
        is_required: whether it is required.
        low, high: bounds of a number; None for none.
    """

    name: str
    flag: str
    env: str
    default: Any
    unit: str
    help: str
    annotation: Any
    metavar: str
    is_required: bool
    low: float | None
    high: float | None

    @property
    def is_list(self) -> bool:
        """Whether the option is repeatable."""
        return get_origin(self.annotation) is tuple


def rows_of(model: type[BaseModel], env_prefix: str = "") -> tuple[OptionRow, ...]:
    """All options of a model: its own in their order, then those of the models that it extends.

    Args:
        model: a model whose fields were made by `option`.
        env_prefix: prefix of the environment variables; "" for none.
    """
    names = [
        name
        for kind in model.__mro__
        for name in getattr(kind, "__annotations__", {})
        if name in model.model_fields
    ]
    return tuple(_row(name, model.model_fields[name], env_prefix) for name in dict.fromkeys(names))


def _row(name: str, field: FieldInfo, env_prefix: str) -> OptionRow:
    extra = field.json_schema_extra
    more: dict[str, Any] = dict(extra) if isinstance(extra, dict) else {}
    bounds = {type(item): item for item in field.metadata}
    low, high = bounds.get(annotated_types.Ge), bounds.get(annotated_types.Le)
    flag = "" if more.get("is_argument") else more.get("flag") or "--" + name.replace("_", "-")
    return OptionRow(
        name=name,
        flag=flag,
        env=env_prefix + name.upper() if env_prefix else more.get("env", ""),
        default=None if field.is_required() else field.get_default(call_default_factory=True),
        unit=more.get("unit", ""),
        help=str(field.description),
        annotation=field.annotation,
        metavar=more.get("metavar", ""),
        is_required=field.is_required(),
        low=None if low is None else low.ge,
        high=None if high is None else high.le,
    )


def parameters_of(rows: tuple[OptionRow, ...]) -> list[inspect.Parameter]:
    """Converts rows to function parameters that typer reads."""
    return [_parameter(row) for row in rows]


def _parameter(row: OptionRow) -> inspect.Parameter:
    kind, default = _for_shell(row)
    more: dict[str, Any] = {
        "help": _help(row),
        "metavar": row.metavar or ("DIR" if row.name.endswith("root") else None),
    }
    if row.default is None or row.default in ({}, ()):
        more["show_default"] = False
    env = row.env or None
    if env and row.is_list:
        # Typer would split the variable at spaces, which paths may contain; the command's `default_map` keeps it whole.
        more["help"], env = f"{more['help']} [env var: {env}]", None
    if row.flag:
        is_pair = kind == bool | None or (kind is bool and bool(row.default or row.env))
        pair = f"{row.flag}/--no-{row.flag[2:]}" if is_pair else row.flag
        marker = typer.Option(pair, envvar=env, **more)
    else:
        marker = typer.Argument(**more)
    value = inspect.Parameter.empty if row.is_required else default
    return inspect.Parameter(
        row.name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=Annotated[kind, marker]
    )


def _help(row: OptionRow) -> str:
    """The help text. The model checks bounds and reports all errors; typer would stop at the first."""
    low = "" if row.low is None else f"{row.low:g}<="
    high = "" if row.high is None else f"<={row.high:g}"
    bounds = f"{low}x{high}" if low or high else ""
    more = "; ".join(filter(None, (row.unit, bounds)))
    return f"{row.help} [{more}]" if more else row.help


def _for_shell(row: OptionRow) -> tuple[Any, Any]:
    """Type and default in a form that typer supports."""
    kind, default = row.annotation, row.default
    if isinstance(default, SecretStr):
        return str, default.get_secret_value()
    if _is_union(kind) and all(get_origin(item) is Literal for item in get_args(kind)):
        return Literal[tuple(value for item in get_args(kind) for value in get_args(item))], default
    inner = [item for item in get_args(kind) if item is not type(None)] if _is_union(kind) else [kind]
    if len(inner) == 1 and (get_origin(inner[0]) or inner[0]) in (Mapping, tuple, list):
        item = str if get_origin(inner[0]) is Mapping else get_args(inner[0])[0]
        values = None if not default else list(default)
        return list[item] if row.is_required else list[item] | None, values  # type: ignore[valid-type]
    return kind, default


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def read_options(model: type[O], values: dict[str, Any]) -> O:
    """Makes options from the values of a command line; missing values have their defaults.

    Raises:
        ConfigError: if values are invalid; the message lists all of them.
    """
    try:
        return model.model_validate({name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        raise ConfigError(describe_faults(error, rows_of(model))) from error


def describe_faults(error: ValidationError, rows: tuple[OptionRow, ...]) -> str:
    """Describes validation errors for the command line: flag, variable, expected and found value."""
    names = {row.name: _names(row) for row in rows}
    faults = error.errors(include_url=False)
    return "; ".join(
        names.get(str(fault["loc"][0]) if fault["loc"] else "", "")
        + (fault["msg"] if fault["type"] == "missing" or not fault["loc"] else _found(fault))
        for fault in faults
    )


def _names(row: OptionRow) -> str:
    flag = row.flag or row.metavar or row.name.upper()
    return f"{flag} ({row.env}): " if row.env else f"{flag}: "


def _found(fault: Any) -> str:
    return f"{fault['msg']}, found {fault['input']!r:.80}"


def plain(value: Any) -> str:
    """A value in the form of an environment variable."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def with_parameters(
    function: Callable[..., None], rows: tuple[OptionRow, ...], **more: Any
) -> Callable[..., None]:
    """Gives a function of keyword arguments the signature from which typer makes flags.

    Args:
        function: function of a command.
        rows: its options.
        more: name -> annotation of optional parameters without a row.
    """
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in more.items()
    ]
    parameters = [*own, *parameters_of(rows)]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function
