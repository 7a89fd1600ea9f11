"""Kinds of index that many tests look at; each is made once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glow.index import COMPONENTS
from glow.runtime import Model
from tests.components.cases import Case, Maker, Segments
from tests.components.files import FileCase
from tests.components.kinds import KINDS
from tests.components.test_vectors import DIMENSIONS, NEW, OLD, Array
from tests.components.versions import Versions

World = Callable[[str], tuple[Segments, dict[str, Any]]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, learned_model: Path) -> World:
    """A maker of segments of a kind, and what was made by it; new for every module, as a module may have more components."""
    model, found = Model.open(learned_model), dict[str, Any]()

    def new_folder() -> Path:
        return tmp_path_factory.mktemp("segment") / "made"

    def of(kind: str) -> tuple[Segments, dict[str, Any]]:
        if kind not in found:
            options = {"model": learned_model, "threads": 1, **KINDS[kind].options}
            found[kind] = Segments(Maker(model, options), new_folder), {}
        return found[kind]

    return of


@pytest.fixture(scope="module")
def made_versions(tmp_path_factory: pytest.TempPathFactory, learned_model: Path) -> Callable[[str], Versions]:
    """Versions of a kind of index, made by the commands; likewise new for every module."""
    found: dict[str, Versions] = {}

    def of(kind: str) -> Versions:
        if kind not in found:
            found[kind] = Versions(tmp_path_factory.mktemp(kind), learned_model, KINDS[kind].options)
        return found[kind]

    return of


@pytest.fixture
def file_case(
    request: pytest.FixtureRequest, made_versions: Callable[[str], Versions], tmp_path: Path
) -> FileCase:
    """A component in versions of a kind of index: `(kind, name of the component)`."""
    kind, name = request.param
    return FileCase(next(each for each in COMPONENTS if each.name == name), made_versions(kind), tmp_path)


@pytest.fixture
def case(request: pytest.FixtureRequest, world: World) -> Case:
    """A component in a kind of index: `(kind, name of the component)`."""
    kind, name = request.param
    component = next(each for each in COMPONENTS if each.name == name)
    return Case(component, *world(kind))


@pytest.fixture(scope="module")
def vectors() -> Array:
    generator = np.random.default_rng(0)
    found = (
        generator.standard_normal((30, DIMENSIONS))[generator.integers(0, 30, OLD + NEW)]
        + generator.standard_normal((OLD + NEW, DIMENSIONS)) * 0.5
    )
    found[40:46] = found[OLD + 3] = found[40]  # documents with the same text, in base and delta
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def gone() -> NDArray[np.int64]:
    return np.sort(np.random.default_rng(1).choice(OLD, 60, replace=False))
