"""Which builds are the same: one input, one model, the options that decide what comes out, one GLOW."""

import hashlib
import json
from collections.abc import Sequence

from glow import __version__
from glow.index.token_embeddings import StatesHeader
from glow.runtime import Model
from glow_index_builder.input import Source
from glow_index_builder.options import BuildOptions

__all__ = ["key_of"]

FORMAT = 2
"""Of the work folder; another one is not gone on with."""
NO_MATTER = ("source", "threads")
"""Parameters that may differ between a build and what goes on with it: `source` stands as its files."""
KEY_CHARACTERS = 24


def key_of(
    options: BuildOptions,
    sources: Sequence[Source],
    model: Model,
    states: StatesHeader | None,
    learned: str | None = None,
) -> str | None:
    """Names a build's work folder: equal for a build that may go on with what another did.

    Files are told apart by path, size and time of change, not read.

    Args:
        options: of the build.
        sources: its input files.
        model: the model.
        states: what is stored for a re-ranker; None: there is none.
        learned: hash of what makes learned impacts; None: there are none.

    Returns:
        Hexadecimal digits; None where an input is a pipe, which cannot be read again.
    """
    inputs = [source.identity for source in sources]
    if None in inputs:
        return None
    parameters = {key: value for key, value in options.parameters().items() if key not in NO_MATTER}
    reranker = None if states is None else states.model
    parts = [FORMAT, __version__, model.hash, reranker, learned, inputs, parameters]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:KEY_CHARACTERS]
