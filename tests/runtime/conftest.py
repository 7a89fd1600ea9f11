"""The toy model, open, with both of its encoders."""

from pathlib import Path

import pytest

from glow.runtime import Encoder, Model


@pytest.fixture(scope="session")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)


@pytest.fixture(scope="session", params=["query", "document"])
def tower(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def encoder(model: Model, tower: str) -> Encoder:
    return model.encoder(tower)
