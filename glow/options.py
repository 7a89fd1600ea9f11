"""Options and file headers as frozen pydantic models: strict, read from JSON or TOML; all faults are reported together."""

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glow.errors import ConfigError

T = TypeVar("T")
MAX_FOREIGN_BYTES = 1 << 22
MAX_FAULTS, MAX_PLACE = 8, 80


class StrictModel(BaseModel):
    """A frozen options file: unknown keys are refused and all faults are reported together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the options from a JSON file; a refusal names every fault."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"cannot read {path.name}: {error.strerror or error}") from error
        except ValidationError as error:
            raise ConfigError(f"{path.name} is not valid: {describe(error)}") from error

    def save(self, path: Path) -> None:
        """Writes the options as indented JSON, the same bytes for the same options."""
        path.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @property
    def hash(self) -> str:
        """SHA-256 of the options' canonical JSON, as hexadecimal digits."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class ForeignModel(StrictModel):
    """A JSON file of another program: unknown keys are ignored, values must have exact types, and its size is limited."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        return load_foreign(path, cls.model_validate_json)


def option(
    default: Any,  # `...` if the option is required
    description: str,  # one sentence, for help and documentation
    *,
    flag: str = "",  # if it differs from the field's name
    unit: str = "",
    metavar: str = "",  # placeholder of the value in the help
    env: str = "",  # environment variable that gives the value if no flag does
    is_argument: bool = False,  # positional, instead of a flag
    **limits: Any,  # as for pydantic's `Field`: `ge`, `le` and so on
) -> Any:
    """A field of a command's options model, from which its flag and documentation are generated (`glow.commands`)."""
    extra: dict[str, Any] = {
        "flag": flag, "unit": unit, "metavar": metavar, "env": env, "is_argument": is_argument,
    }  # fmt: skip
    return Field(default, description=description, json_schema_extra=extra, **limits)


def read_toml(path: Path) -> dict[str, Any]:
    """Parses a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ConfigError(f"cannot read {path}: it is nested too deeply") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def merged(base: Any, changes: Any) -> Any:
    """Merges tables key by key; any other value is replaced by the change."""
    if not isinstance(base, Mapping) or not isinstance(changes, Mapping):
        return changes
    return {**base, **{key: merged(base.get(key), value) for key, value in changes.items()}}


def load_foreign(path: Path, parse: Callable[[bytes], T]) -> T:
    """Reads a JSON file of another program, of at most `MAX_FOREIGN_BYTES`; `parse` validates the contents by pydantic."""
    try:
        if not path.is_file():
            raise ConfigError(f"cannot read {path}: there is no such file")
        with path.open("rb") as file:
            data = file.read(MAX_FOREIGN_BYTES + 1)
        if len(data) > MAX_FOREIGN_BYTES:
            raise ConfigError(f"cannot read {path}: expected at most {MAX_FOREIGN_BYTES} bytes, it has more")
        return parse(data)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except ValidationError as error:
        raise ConfigError(f"cannot read {path}: {describe(error)}") from error


def describe(error: ValidationError) -> str:
    """The first faults of a validation error in one line: `place: what is wrong (found: …)`."""
    faults = error.errors(include_url=False)
    lines = [
        f"{'.'.join(map(str, fault['loc']))[:MAX_PLACE] or 'file'}: {fault['msg']} (found: {fault['input']!r:.80})"
        for fault in faults[:MAX_FAULTS]
    ]
    if more := len(faults) - len(lines):
        lines.append(f"and {more} more")
    return "; ".join(lines)
