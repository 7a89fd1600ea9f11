"""Settings from files: a TOML file, and one file per secret."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from glow.commands import OptionRow
from glow.errors import ConfigError

__all__ = ["CONFIG_VARIABLE", "read_files"]

CONFIG_VARIABLE = "GLOW_CONFIG"
FILE_SUFFIX = "_FILE"


def read_files(
    config: Path | None, rows: tuple[OptionRow, ...], environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Reads the settings of files, which flags and variables override; also reads list variables.

    Args:
        config: TOML file whose keys are names of settings; None: none.
        rows: all settings.
        environ: environment variables; one with the suffix `_FILE` names the file of a secret.

    Returns:
        name -> value.

    Raises:
        ConfigError: if a file cannot be read, or a key is not a setting; messages never contain secrets.
    """
    values: dict[str, Any] = {}
    known = {row.name for row in rows}
    if config is not None:
        try:
            values = tomllib.loads(config.read_text(encoding="utf-8"))
        except RecursionError as error:
            raise ConfigError(f"cannot read {config}: it is nested too deeply") from error
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"cannot read {config}: {error}") from error
        if unknown := sorted(set(values) - known):
            raise ConfigError(
                f"{config} has unknown settings: {', '.join(unknown)}; docs/reference/settings.md lists all settings"
            )
    for row in rows:
        if row.is_list:
            given = environ.get(row.env) or values.get(row.name)
            if given is not None:
                values[row.name] = [given] if isinstance(given, str) else given
        path = environ.get(f"{row.env}{FILE_SUFFIX}")
        if path and isinstance(row.default, SecretStr):
            try:
                values[row.name] = Path(path).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8"
                raise ConfigError(f"{row.env}{FILE_SUFFIX}: cannot read {path}: {reason}") from error
    return values
