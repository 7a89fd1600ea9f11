"""Options and headers as frozen pydantic models: strict, read from JSON or TOML, with all their faults in one line."""

import hashlib
import tomllib
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from glow.errors import ConfigError

__all__ = ["StrictModel", "describe"]


class StrictModel(BaseModel):
    """A frozen options file: unknown keys are refused and all faults are reported together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads the options from a JSON file.

        Raises:
            ConfigError: if the file cannot be read or is not valid; every fault is named.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"cannot read {path.name}: {error.strerror or error}") from error
        except ValidationError as error:
            raise ConfigError(f"{path.name} is not valid: {describe(error)}") from error

    @classmethod
    def load_toml(cls, path: Path) -> Self:
        """Reads the options from a TOML file, which people write.

        Raises:
            ConfigError: if the file cannot be read or is not valid; every fault is named.
        """
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from error
        except ValidationError as error:
            raise ConfigError(f"{path} is not valid: {describe(error)}") from error

    def save(self, path: Path) -> None:
        """Writes the options as indented JSON, the same bytes for the same options."""
        path.write_text(self.model_dump_json(indent=2, by_alias=True) + "\n", encoding="utf-8")

    @property
    def hash(self) -> str:
        """SHA-256 of the options' canonical JSON, as hexadecimal digits."""
        return hashlib.sha256(self.model_dump_json(by_alias=True).encode()).hexdigest()


def describe(error: ValidationError) -> str:
    """All faults of a validation error in one line: `place: what is wrong (found: …)`."""
    faults = error.errors(include_url=False)
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'file'}: {fault['msg']} (found: {fault['input']!r:.80})"
        for fault in faults
    )
