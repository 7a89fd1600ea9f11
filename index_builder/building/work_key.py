"""Which builds are the same: one input, one model, the options that decide what comes out, one GLOW."""

import hashlib
import json
from collections.abc import Mapping, Sequence

from glow import __version__
from glow.index import Rules
from glow.runtime import Model
from glow_index_builder.input import Source
from glow_index_builder.options import CommonOptions

__all__ = ["key_of"]

FORMAT = 3
"""Of the work folder; another one is not gone on with."""
NO_MATTER = ("source", "threads")
"""Parameters that may differ between a build and what goes on with it: `source` stands as its files."""
KEY_CHARACTERS = 24


def key_of(
    options: CommonOptions,
    sources: Sequence[Source],
    model: Model,
    rules: Mapping[str, Rules],
) -> str | None:
    """Names a build's work folder: equal for a build that may go on with what another did.

    Files are told apart by path, size and time of change, not read.

    Args:
        options: of the build.
        sources: its input files.
        model: the model.
        rules: name of each component that is made -> how.

    Returns:
        Hexadecimal digits; None if an input is a pipe, which can be read only once.
    """
    inputs = [source.identity for source in sources]
    if None in inputs:
        return None
    parameters = {key: value for key, value in options.parameters().items() if key not in NO_MATTER}
    hashes = {name: dict(each.hashes) for name, each in rules.items()}
    parts = [FORMAT, __version__, model.hash, hashes, inputs, parameters]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:KEY_CHARACTERS]
