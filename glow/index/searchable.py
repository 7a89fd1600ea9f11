"""The interface of a searchable index: an index version, or a corpus in memory under evaluation."""

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from glow.index.calibration import Calibrations
from glow.index.segment import Key
from glow.index.settings import Fusion
from glow.index.spelling import Speller
from glow.text import Preprocessor

__all__ = ["Searchable"]

R = TypeVar("R")


class Searchable(Protocol):
    """An index for searches; `Index` describes each method."""

    @property
    def preprocessor(self) -> Preprocessor: ...
    @property
    def fusion(self) -> Fusion: ...
    @property
    def calibrations(self) -> Calibrations: ...
    @property
    def order(self) -> NDArray[np.uint32]: ...
    @property
    def speller(self) -> Speller | None: ...
    def holds(self, component: Key[Any, Any]) -> bool: ...
    def __getitem__(self, component: Key[Any, R]) -> R: ...
