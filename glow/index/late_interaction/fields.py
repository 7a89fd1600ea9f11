"""Which of a row's tokens are of which field: between two fields stands a [SEP], which is not stored and so leaves a gap."""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

__all__ = ["tokens_of_field"]


def tokens_of_field(places: NDArray[np.uint16], field: int) -> slice:
    """The tokens of one field.

    Args:
        places: uint16 [t], of every token of a word in a text that begins with [CLS] and ends each field with a [SEP]. Of a text
            whose tokens share codes, so that some are not stored, nothing can be told.
        field: its place in the schema, >= 0.

    Returns:
        Which of the t; of a field without a word none.
    """
    known = places.tolist()

    def before(number: int) -> int:
        """How many that are not stored stand before a token."""
        return int(known[number]) - number

    first = bisect_left(range(len(known)), field + 1, key=before)
    return slice(first, bisect_left(range(len(known)), field + 2, first, key=before))
