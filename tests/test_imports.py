"""What ARCHITECTURE.md says of packages and folders, read from there and from the syntax tree, and proved without torch.

Imports inside functions count as well, and so does `importlib.import_module("name")`. A package of the checkout may import
itself, the standard library, and what its row of the table lists. Folders import each other in one direction.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_rules import ROOT, RULES, Module, cycle, read_modules, ring_of_folders, violations

BASE = sorted(RULES["glow.runtime"].ours or ())
WITH_TORCH = ("glow.nn", "glow.training", "glow_model_export", "research", "benchmarks")
BLOCKED = "torch transformers safetensors onnx onnxscript ir_measures bm25s ray pyarrow backports".split()
"""Extras: no torch-free module may need one of them to be imported."""


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_modules(ROOT)


def test_every_package_imports_only_what_the_table_allows(modules: dict[str, Module]) -> None:
    assert len(modules) > 20
    assert not violations(modules), "\n" + "\n".join(violations(modules))


def test_no_folders_import_each_other_in_a_ring(modules: dict[str, Module]) -> None:
    assert not ring_of_folders(modules), " imports ".join(ring_of_folders(modules))


def test_every_row_of_the_table_is_a_package_that_is_there(modules: dict[str, Module]) -> None:
    assert not [
        name
        for name in RULES
        if not any(module == name or module.startswith(f"{name}.") for module in modules)
    ]


def test_no_modules_import_each_other_in_a_ring(modules: dict[str, Module]) -> None:
    assert not cycle(modules), " imports ".join(cycle(modules))


IMPORT_ALL = """
import importlib, importlib.abc, sys
names, blocked = sys.argv[1].split(), set(sys.argv[2].split())

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError(f"{name} is not to be imported here")

sys.meta_path.insert(0, Refuse())
for name in names:
    try:
        importlib.import_module(name)
    except BaseException as error:
        sys.stdout.write(f"{name}: {type(error).__name__}: {error}\\n")
sys.stdout.write("loaded: " + " ".join(sys.modules))
"""


def import_apart(names: list[str], blocked: list[str]) -> tuple[list[str], set[str]]:
    """Imports modules in a fresh process; returns the failures and everything that was loaded."""
    command = [sys.executable, "-c", IMPORT_ALL, " ".join(names), " ".join(blocked)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    *failures, loaded = done.stdout.splitlines()
    return failures, set(loaded.removeprefix("loaded: ").split())


def test_every_torch_free_module_can_be_imported_where_torch_and_the_extras_raise(
    modules: dict[str, Module],
) -> None:
    names = [name for name in modules if not name.startswith(WITH_TORCH)]
    failures, loaded = import_apart(names, BLOCKED)
    assert not failures, "\n" + "\n".join(failures)
    assert set(names) <= loaded


def test_the_base_of_glow_loads_nothing_heavy() -> None:
    failures, loaded = import_apart(BASE, [])
    assert not failures, failures
    assert not loaded & {"onnxruntime", "faiss", "fastapi", "torch", "redis", "typer", "httpx", "wordninja"}


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        (
            "glow/text/bad.py",
            "import os\nimport torch\n",
            "glow/text/bad.py:2: imports torch, but glow.text may",
        ),
        (
            "glow/text/bad.py",
            "from glow.artifact import verify\n",
            "bad.py:1: imports glow.artifact, but glow.text",
        ),
        ("glow/text/bad.py", "from glow import artifact\n", "bad.py:1: imports glow.artifact, but glow.text"),
        (
            "glow/runtime/bad.py",
            "import glow.index.vectors\n",
            "bad.py:1: imports glow.index.vectors, but glow.runtime",
        ),
        (
            "service/bad.py",
            "def late():\n    import glow_index_builder\n",
            "service/bad.py:2: imports glow_index_builder, but",
        ),
        (
            "service/bad.py",
            "from glow.nn import towers\n",
            "bad.py:1: imports glow.nn.towers, but glow_service",
        ),
        ("service/api/bad.py", "from ...glow import nn\n", "service/api/bad.py:1: imports glow.nn, but"),
        (
            "index_builder/bad.py",
            "import importlib as i\ni.import_module('fastapi')\n",
            "bad.py:2: imports fastapi",
        ),
        ("demo/bad.py", "import numpy\n", "demo/bad.py:1: imports numpy, but glow_demo may"),
        ("glow/bad.py", "", "glow.bad is in no row of the table"),
    ],
)
def test_a_forbidden_import_is_named_with_file_line_and_rule(
    tmp_path: Path, path: str, code: str, message: str
) -> None:
    targets = ("glow", "glow/artifact", "glow/search", "glow/index/vectors", "glow/nn", "glow/nn/towers")
    for name in (*(f"{target}/__init__.py" for target in targets), path):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code if name == path else "")
    (found,) = violations(read_modules(tmp_path))
    assert message in found


def test_allowed_imports_are_no_violation(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "__init__.py").write_text("")
    (tmp_path / "service" / "good.py").write_text(
        "import json\nimport fastapi.routing\nfrom glow.search import Index\nfrom . import other\nfrom .other import x\n"
    )
    assert violations(read_modules(tmp_path)) == []


def test_a_ring_of_folders_is_found(tmp_path: Path) -> None:
    files = {
        "service/__init__.py": "",
        "service/search/__init__.py": "from glow_service.search.pool import Pool\n",
        "service/search/pool.py": "from glow_service.live import watch\n",
        "service/live/__init__.py": "def watch(): ...\n",
        "service/live/swap.py": "from glow_service.search.pool import Pool\n",
    }
    for name, code in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    modules = read_modules(tmp_path)
    assert set(ring_of_folders(modules)) == {"glow_service.live", "glow_service.search"}


def test_a_ring_of_imports_is_found(tmp_path: Path) -> None:
    files = {
        "__init__": "",
        "a": "from glow.b import x\n",
        "b": "def f():\n    import glow.c\n",
        "c": "from . import a\n",
    }
    (tmp_path / "glow").mkdir()
    for name, code in files.items():
        (tmp_path / "glow" / f"{name}.py").write_text(code)
    found = cycle(read_modules(tmp_path))
    assert set(found) == {"glow.a", "glow.b", "glow.c"}
    assert found[0] == found[-1]
    (tmp_path / "glow" / "c.py").write_text("")
    assert cycle(read_modules(tmp_path)) == []
