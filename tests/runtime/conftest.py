"""The toy model, open."""

from pathlib import Path

import pytest

from glow.runtime import Model


@pytest.fixture(scope="session")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)
