"""Kinds of index that many tests look at; each is made once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glow.index import COMPONENTS
from glow.runtime import Model
from tests.components.cases import Case, Segments
from tests.components.files import FileCase
from tests.components.kinds import KINDS
from tests.components.versions import Versions

World = Callable[[str], tuple[Segments, dict[str, Any]]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, learned_model: Path) -> World:
    """What makes segments of a kind, and what was made by it; new for every module, as a module may have more components."""
    model, found = Model.open(learned_model), dict[str, Any]()

    def new_folder() -> Path:
        return tmp_path_factory.mktemp("segment") / "made"

    def of(kind: str) -> tuple[Segments, dict[str, Any]]:
        if kind not in found:
            options = {"model": learned_model, "threads": 1, **KINDS[kind].options}
            found[kind] = Segments(model, options, new_folder), {}
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
    kind, name = request.param
    return FileCase(next(each for each in COMPONENTS if each.name == name), made_versions(kind), tmp_path)


@pytest.fixture
def case(request: pytest.FixtureRequest, world: World) -> Case:
    """A component in a kind of index: `(kind, name of the component)`."""
    kind, name = request.param
    component = next(each for each in COMPONENTS if each.name == name)
    return Case(component, *world(kind))
