"""Every component of `COMPONENTS`, in every kind of index that holds it, keeps the contract."""

import pytest

from glow.index import COMPONENTS
from tests.components.answers import Answers
from tests.components.files import Files
from tests.components.kinds import KINDS

CASES = [
    pytest.param((kind, component.name), id=f"{kind}-{component.name}")
    for kind in ("whole", "plain")
    for component in COMPONENTS
    if component.name not in KINDS[kind].lacks
]


@pytest.mark.parametrize("case", CASES, indirect=True)
class TestAnswers(Answers):
    """What they answer and write."""


@pytest.mark.parametrize("file_case", CASES, indirect=True)
class TestFiles(Files):
    """What they make of files."""
