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
OURS = (
    *FOLDERS,
    "glow_service",
    "glow_index_builder",
    "glow_model_export",
    "glow_demo",
    "glow_models",
    "tests",
)
USED = {
    ("glow/client/attempts.py", "_mounts"): "httpx",
    ("glow/client/attempts.py", "_transport"): "httpx",
    ("glow/index/milvus/connection.py", "_handler"): "pymilvus",
    ("service/redis/link.py", "_AsyncRESP2Parser"): "redis",
    ("service/redis/link.py", "_parsers"): "redis",
    ("service/redis/link.py", "_read"): "redis",
    ("service/redis/link.py", "_readline"): "redis",
    ("service/commands/serve.py", "_subprocess"): "uvicorn",
    ("service/protocol.py", "_start_asgi_task"): "uvicorn",
    ("service/protocol.py", "_unset_keepalive_if_required"): "uvicorn",
}
"""File and private member -> the package that it belongs to; pyproject.toml bounds each above."""
PROMISED = {"_asdict", "_replace", "_fields", "_make", "_exit"}
"""Of named tuples, and `os._exit`: documented, for all their underscores."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_foreign(module: str) -> bool:
    top = module.partition(".")[0]
    return top not in OURS and top not in sys.stdlib_module_names


def defined(tree: ast.AST) -> set[str]:
    """Names that the code itself gives to something."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return names


def private_imports(tree: ast.AST) -> Iterator[str]:
    """Private modules and names that are imported from others' packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            lines = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            lines = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for line in filter(is_foreign, lines):
            yield from filter(is_private, line.split("."))


def self_of_foreign_classes(tree: ast.AST) -> set[ast.expr]:
    """Each `self` and `cls` in a class that derives from one of others' packages."""
    foreign = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and is_foreign(str(node.module)):
            foreign |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            foreign |= {
                alias.asname or alias.name.partition(".")[0] for alias in node.names if is_foreign(alias.name)
            }
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    derived = [
        each for each in classes if {ast.unparse(base).partition(".")[0] for base in each.bases} & foreign
    ]
    names = (node for each in derived for node in ast.walk(each) if isinstance(node, ast.Name))
    return {node for node in names if node.id in ("self", "cls")}


def private_members(trees: dict[str, ast.AST]) -> set[tuple[str, str]]:
    """File and private name, of all that nothing in the same code defines.

    `self._name` in a class that derives from one of others is looked for in its file alone, and `super()._name` is always
    others'. Any other `thing._name` is ours if any file defines it.
    """
    everywhere = set().union(*map(defined, trees.values())) | PROMISED
    found = set()
    for file, tree in trees.items():
        found |= {(file, name) for name in private_imports(tree)}
        here, foreign_self = defined(tree) | PROMISED, self_of_foreign_classes(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                known = here if node.value in foreign_self else everywhere
                if node.attr not in known or ast.unparse(node.value) == "super()":
                    found.add((file, node.attr))
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("getattr", "setattr")
                and len(node.args) > 1
            ):
                name = node.args[1]
                if isinstance(name, ast.Constant) and is_private(name.value) and name.value not in everywhere:
                    found.add((file, name.value))
    return found


def test_private_members_of_others_are_those_that_are_written_down() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    assert private_members(trees) == set(USED), (
        "use what is public; where there is nothing public, name it in USED, with an upper bound in pyproject.toml"
    )


@pytest.mark.parametrize("package", sorted(set(USED.values())))
def test_a_package_whose_private_members_are_used_has_an_upper_bound(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    requirements = [found for found in map(Requirement, lines) if found.name == package]
    assert requirements
    for requirement in requirements:
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators & {"<", "<=", "==", "~="}, f"{requirement} in pyproject.toml has no upper bound"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import fsspec\nfsspec.get()._strip_protocol('x')", {"_strip_protocol"}),
        ("from torch.utils._python_dispatch import TorchDispatchMode", {"_python_dispatch"}),
        ("from numpy import _core", {"_core"}),
        ("import a.b\nclass C(a.b.D):\n    def f(self):\n        return self._of_d", {"_of_d"}),
        ("class C(D):\n    def _f(self):\n        return super()._f()", {"_f"}),
        ("getattr(thing, '_hidden', None)", {"_hidden"}),
        (
            "class C:\n    def __init__(self):\n        self._own = 1\n    def f(self):\n        return self._own",
            set(),
        ),
        ("import os\nos._exit(1)", set()),
        ("from glow.text import _own", set()),
    ],
)
def test_the_search_for_private_members_sees_them(code: str, names: set[str]) -> None:
    assert {name for _, name in private_members({"file.py": ast.parse(code)})} == names
