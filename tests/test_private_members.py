"""What others' packages do not promise is used where it is written down, of versions up to one that was tried.

Tests themselves may look inside: they run with the versions of docker/requirements/dev.txt.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FOLDERS = ("glow", "service", "index_builder", "model_export", "demo", "scripts", "research", "benchmarks")
OURS = (*FOLDERS, *(f"glow_{folder}" for folder in FOLDERS), "glow_models", "tests")
USED = {
    ("glow/index/milvus/connection.py", "_handler"): "pymilvus",
}
"""File and private member -> the package that it belongs to; pyproject.toml bounds each above."""
PROMISED = {"_asdict", "_replace", "_fields", "_make", "_exit"}
"""Of named tuples, and `os._exit`: documented, for all their underscores."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(tree: ast.AST) -> set[str]:
    """Names that the code itself gives to something."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    stored = (node for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Store))
    return names | {getattr(node, "attr", getattr(node, "id", "")) for node in stored}


def imported(tree: ast.AST) -> Iterator[str]:
    """Private modules and names that are imported from others' packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for path in (f"{start}{alias.name}".split(".") for alias in node.names):
                if path[0] not in OURS and path[0] not in sys.stdlib_module_names:
                    yield from filter(is_private, path)


def private_members(trees: dict[str, ast.AST]) -> set[tuple[str, str]]:
    """File and private name, of all that nothing in the same code defines; `super()._name` is always others'."""
    ours = set().union(*map(defined, trees.values())) | PROMISED
    found = set()
    for file, tree in trees.items():
        found |= {(file, name) for name in imported(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                if node.attr not in ours or ast.unparse(node.value) == "super()":
                    found.add((file, node.attr))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr"):
                names = [each.value for each in node.args[1:2] if isinstance(each, ast.Constant)]
                found |= {(file, name) for name in names if is_private(name) and name not in ours}
    return found


def test_private_members_of_others_are_those_that_are_written_down() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    assert private_members(trees) == set(USED), (
        "use what is public; where there is nothing public, name it in USED, with an upper bound in pyproject.toml"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    for package in set(USED.values()):
        needed = [each for each in map(Requirement, lines) if each.name == package]
        operators = [{specifier.operator for specifier in each.specifier} for each in needed]
        assert operators and all(each & {"<", "<=", "==", "~="} for each in operators), package


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import fsspec\nfsspec.get()._strip_protocol('x')", {"_strip_protocol"}),
        ("from torch.utils._python_dispatch import TorchDispatchMode", {"_python_dispatch"}),
        ("class C(D):\n    def _f(self):\n        return super()._f()", {"_f"}),
        ("getattr(thing, '_hidden', None)", {"_hidden"}),
        ("class C:\n    def f(self):\n        self._own = 1\n        return self._own", set()),
        ("import os\nos._exit(1)\nfrom glow.text import _own", set()),
    ],
)
def test_the_search_for_private_members_sees_them(code: str, names: set[str]) -> None:
    assert {name for _, name in private_members({"file.py": ast.parse(code)})} == names
