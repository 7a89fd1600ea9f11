"""Reading a module's names from its source."""

from pathlib import Path

import pytest

from glow_demo.entries import Entry
from glow_demo.source_objects import source_entries

SOURCE = '''
"""A module that must never run."""
raise SystemExit("it ran")

__all__ = ["Tool", "fail", "forked"]
__all__ += ["ToolError"]

class _Base:
    def help(self, topic, /, *, deep: bool = False):
        """Explain a topic."""

class Tool(_Base):
    """Does things."""
    def __init__(self, name="t"): ...
    @staticmethod
    def make(size): ...
    @classmethod
    def load(cls): "Load a tool."
    @property
    def size(self): "Its size."
    @property
    def silent(self): ...
    def _hidden(self): "Nobody's business."

class ToolError(ValueError): ...

if FORKS:
    def forked(): ...
else:
    def forked(tries): "Fork a lot."

def fail(): "Fail. Loudly."
def unlisted(): "Public by its name only."
'''


@pytest.fixture
def entries(tmp_path: Path) -> dict[str, Entry]:
    source = tmp_path / "m.py"
    source.write_text(SOURCE, encoding="utf-8")
    return {entry.title: entry for entry in source_entries("m", source)}


def test_public_names_are_those_of_all(entries: dict[str, Entry]) -> None:
    assert set(entries) == {
        *("m", "m.Tool", "m.Tool.help", "m.Tool.load", "m.Tool.make", "m.Tool.size"),
        *("m.ToolError", "m.fail", "m.forked"),
    }


def test_members_of_a_private_base_belong_to_the_public_class(entries: dict[str, Entry]) -> None:
    assert entries["m.Tool.help"].text == "m.Tool.help(topic, /, *, deep: bool=False)\n\nExplain a topic."


def test_a_class_has_its_constructors_signature(entries: dict[str, Entry]) -> None:
    assert entries["m.Tool"].text == "m.Tool(name='t')\n\nDoes things."


def test_only_a_static_method_keeps_its_first_parameter(entries: dict[str, Entry]) -> None:
    assert entries["m.Tool.make"].text == "m.Tool.make(size)"
    assert entries["m.Tool.load"].signature == "()"


def test_a_class_without_docstring_names_its_bases(entries: dict[str, Entry]) -> None:
    assert entries["m.ToolError"].kind == "exception"
    assert entries["m.ToolError"].text == "m.ToolError\n\nA subclass of ValueError."


def test_of_two_definitions_the_documented_one_counts(entries: dict[str, Entry]) -> None:
    assert entries["m.forked"].doc == "Fork a lot."


def test_a_summary_is_the_first_sentence(entries: dict[str, Entry]) -> None:
    assert entries["m.fail"].summary == "Fail."
