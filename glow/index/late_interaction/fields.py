"""Finds the tokens of a field among a row's: [SEP] between two fields is not stored, and so leaves a gap."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

__all__ = ["tokens_of_field"]


def tokens_of_field(places: NDArray[np.uint16], field: int) -> slice:
    """The tokens of one field.

    Args:
        places: uint16 [t], of every word token in a text that begins with [CLS] and ends each field with [SEP]. Pooled tokens
            are incomplete, so their places give no answer.
        field: its position in the schema, >= 0.

    Returns:
        Slice of the t tokens; empty for a field without words.
    """
    known = places.tolist()

    def before(number: int) -> int:
        """How many tokens before this one are not stored."""
        return int(known[number]) - number

    first = bisect_left(range(len(known)), field + 1, key=before)
    return slice(first, bisect_left(range(len(known)), field + 2, first, key=before))
