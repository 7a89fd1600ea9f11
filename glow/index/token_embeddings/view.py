"""What re-ranking asks of term representations, whether one segment holds them or two."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glow.index.token_embeddings.format import StatesHeader

__all__ = ["StatesView"]


class StatesView(Protocol):
    """What re-ranking asks of term representations; `TokenEmbeddingStore` describes each of it. Rows are those of vectors."""

    @property
    def header(self) -> StatesHeader: ...  # noqa: D102 - see the class
    def __len__(self) -> int: ...
    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...  # noqa: D102
    def read(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]: ...  # noqa: D102
