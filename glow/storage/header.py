"""Headers: a small JSON file that describes the arrays beside it."""

from pathlib import Path
from typing import TypeVar, get_args

from pydantic import ValidationError

from glow.errors import FormatError
from glow.options import StrictModel, describe

__all__ = ["read_header"]

H = TypeVar("H", bound=StrictModel)


def read_header(path: Path, kind: type[H], advice: str = "rebuild the index") -> H:
    """Reads a header.

    Args:
        path: the JSON file.
        kind: the expected model; its field `format` lists the known versions.
        advice: what to do about a file of another format.

    Raises:
        FormatError: if it is missing, damaged, or of another format; the message names the file.
    """
    name = f"{path.parent.name}/{path.name}"
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise FormatError(f"cannot read {name}: {error.strerror}; {advice}") from error
    except ValidationError as error:
        known = " or ".join(map(str, get_args(kind.model_fields["format"].annotation)))
        raise FormatError(f"{name} is not of format {known}: {describe(error)}; {advice}") from error
