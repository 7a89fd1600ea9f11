"""Settings as a table of rows: flag, variable, default, unit and one sentence for each, read from the model's fields."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

__all__ = ["ENV_PREFIX", "Setting", "describe", "plain", "rows_of"]

ENV_PREFIX = "GLOW_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    Attributes:
        name: field of `Settings`.
        env: environment variable.
        flag: command-line flag; a boolean has `--no-…` beside it.
        default: value in its own type; None where the setting is required.
        unit: unit of the value, "" where it has none.
        help: one sentence.
        annotation: the value's type.
    """

    name: str
    env: str
    flag: str
    default: Any
    unit: str
    help: str
    annotation: Any


def rows_of(model: type[BaseModel]) -> tuple[Setting, ...]:
    """Every field of a model, in its order."""
    return tuple(
        Setting(
            name=name,
            env=ENV_PREFIX + name.upper(),
            flag="--" + name.replace("_", "-"),
            default=None if field.is_required() else field.default,
            unit=_unit(field),
            help=str(field.description),
            annotation=field.annotation,
        )
        for name, field in model.model_fields.items()
    )


def _unit(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra["unit"]) if isinstance(extra, dict) else ""


def describe(error: ValidationError, model: type[BaseModel]) -> str:
    """All faults in the words of a person at a shell: flag, variable, what was expected and found."""
    rows = {row.name: f"{row.flag} ({row.env}): " for row in rows_of(model)}
    faults = error.errors(include_url=False)
    return "; ".join(
        rows.get(str(fault["loc"][0]) if fault["loc"] else "", "")
        + (fault["msg"] if fault["type"] == "missing" or not fault["loc"] else _found(fault))
        for fault in faults
    )


def _found(fault: Any) -> str:
    return f"{fault['msg']}, found {fault['input']!r:.80}"


def plain(value: Any) -> str:
    """A setting as an environment variable holds it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value)
