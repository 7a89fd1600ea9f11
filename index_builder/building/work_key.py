"""Which builds are the same: those with equal input, model, result-changing options and GLOW version."""

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
"""Format version of the work directory; a build does not resume another format."""
NO_MATTER = ("source", "threads")
"""Parameters that may differ between a build and its resumption; the key has the files of `source` instead."""
KEY_CHARACTERS = 24


def key_of(
    options: CommonOptions,
    sources: Sequence[Source],
    model: Model,
    rules: Mapping[str, Rules],
) -> str | None:
    """Names a build's work directory; builds with equal keys can resume each other.

    Files are compared by path, size and modification time, not by content.

    Args:
        options: of the build.
        sources: its input files.
        model: the model.
        rules: name of each component to build -> its rules.

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
