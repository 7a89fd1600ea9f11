"""Names of tensors in the graphs of a model artifact, for the exporter and the import of encoders."""

from typing import Final

__all__ = ["TensorNames"]


class TensorNames:
    """Tensor names, and suffixes of parameter names for other stored forms."""

    TABLE: Final = "words.weight"
    """The token embedding matrix in a graph."""
    TRANSPOSED: Final = "^T"
    """Suffix of a matrix that a graph stores transposed."""
    CODES: Final = "_codes"
    """Suffix of a transposed matrix's int8 codes."""
    MATRIX_SCALES: Final = "_scales"
    """Suffix of a transposed matrix's column scales."""
    SCALED: Final = "_scaled"
    """Suffix of a normalization's gain that is stored multiplied by the square root of its length."""

    @staticmethod
    def row_scales(table: str) -> str:
        """The name of the scales of a table's rows: `words.scale` for `words.weight`."""
        return f"{table.removesuffix('.weight')}.scale"
