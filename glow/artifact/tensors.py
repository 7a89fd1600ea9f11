"""Names of tensors in the graphs of a model artifact: what the exporter writes, and what reads towers back."""

from typing import Final

__all__ = ["TensorNames"]


class TensorNames:
    """Names, and what stands behind a parameter's name where it is stored in another form."""

    TABLE: Final = "words.weight"
    """The word table in a graph."""
    SCALES: Final = "words.scale"
    """The scales of its rows where it is int8."""
    TRANSPOSED: Final = "^T"
    """Behind the name of a matrix that a graph holds transposed."""
    CODES: Final = "_codes"
    """Behind the name of a transposed matrix: its int8 codes."""
    MATRIX_SCALES: Final = "_scales"
    """Behind the name of a transposed matrix: the scales of its columns."""
    SCALED: Final = "_scaled"
    """Behind the name of a normalization's gain that a graph holds multiplied by the root of its length."""
