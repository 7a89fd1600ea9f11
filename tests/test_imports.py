"""What ARCHITECTURE.md says of rooms and folders, read from there and from the syntax tree, and proved without torch.

Imports inside functions count as well, and so does `importlib.import_module("name")`. A room may import itself, the
standard library, and what its row of the table lists. Outside a folder only its `__init__.py` is imported, folders import
each other in one direction, and none holds too many modules.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "glow": "glow",
    "service": "glow_service",
    "index_builder": "glow_index_builder",
    "model_export": "glow_model_export",
    "demo": "glow_demo",
}
"""Folder of the checkout -> the name that its package is imported by; these make the wheel."""
APART = ("scripts", "research", "benchmarks")
"""Programs of the checkout; nothing imports them."""
LOOK_INSIDE = ("research", "benchmarks")
MOST_MODULES = 20
ROW = re.compile(r"^\| `([\w.]+)` \|([^|\n]*)\|([^|\n]*)\|$", re.MULTILINE)
BASE_LINE = re.compile(r"^`base` is ((?:.|\n)*?)\.\s", re.MULTILINE)


@dataclass(frozen=True)
class Room:
    """What one room may import; None: anything."""

    rooms: frozenset[str] | None
    packages: frozenset[str] | None


def read_rooms(page: str) -> dict[str, Room]:
    """The table of ARCHITECTURE.md section 2."""
    found = BASE_LINE.search(page)
    assert found is not None, "ARCHITECTURE.md no longer says what `base` is"
    base = frozenset(re.findall(r"`([\w.]+)`", found[1]))
    return {
        name: Room(_cell(rooms, base), _cell(packages, base)) for name, rooms, packages in ROW.findall(page)
    }


def _cell(text: str, base: frozenset[str]) -> frozenset[str] | None:
    if text.strip() == "any":
        return None
    return frozenset(re.findall(r"`([\w.]+)`", text)) | (
        base if re.search(r"\bbase\b", text) else frozenset()
    )


ROOMS = read_rooms((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
BASE = sorted(ROOMS["glow.runtime"].rooms or ())
OURS = (*FOLDERS.values(), *FOLDERS, *APART, "tests")
WITH_TORCH = ("glow.nn", "glow.training", "glow_model_export", "research", "benchmarks")
BLOCKED = "torch transformers safetensors onnx onnxscript ir_measures bm25s ray pyarrow backports".split()
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
    for path in sorted(path for top in (*FOLDERS, *APART) for path in (root / top).rglob("*.py")):
        top, *rest = path.relative_to(root).with_suffix("").parts
        parts = (FOLDERS.get(top, top), *rest)
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
    faults = []
    for module in modules.values():
        own = _room_of(module.name)
        if own is None:
            faults.append(
                f"{module.path}: {module.name} is in no room of the table in ARCHITECTURE.md; add it"
            )
            continue
        faults += [
            f"{module.path}:{line}: imports {target}, but {rule}"
            for line, target in module.imports
            if (rule := _rule_broken(own, target))
        ]
    return faults


def _rule_broken(own: str, target: str) -> str:
    """Why a room may not import a name; "" where it may."""
    top, room, rules = target.split(".")[0], _room_of(target), ROOMS[own]
    if top in sys.stdlib_module_names or (top in OURS and room == own):
        return ""
    allowed = rules.rooms if top in OURS else rules.packages
    if allowed is None or (room if top in OURS else top) in allowed:
        return ""
    listed = ", ".join(sorted((rules.rooms or set()) | (rules.packages or set()))) or "nothing"
    return f"{own} may import the standard library and {listed}"


def past_faces(modules: dict[str, Module]) -> list[str]:
    """Every import of a module from outside its package, where the package's `__init__.py` should be asked.

    Commands are reached through the table of verbs, whose text names their modules; the old entry points name them, too.
    """
    faults = []
    for module in modules.values():
        if module.name.split(".")[0] in LOOK_INSIDE or module.name.endswith("__main__"):
            continue
        for line, target in module.imports:
            face = _face_passed(module.name, target, modules)
            if face and face.rpartition(".")[2] != "commands":
                faults.append(f"{module.path}:{line}: imports {target}, past the face of {face}")
    return faults


def _face_passed(importer: str, target: str, modules: dict[str, Module]) -> str:
    """The package that holds the target and not the importer; "" for a package itself, at any depth."""
    package = target.rpartition(".")[0]
    is_inside = importer == package or importer.startswith(f"{package}.")
    if target not in modules or modules[target].is_package or package in ("", "glow") or is_inside:
        return ""
    return package


def folder_of(name: str) -> str:
    """The folder of a room that a module lies in; a module at the room's top stands for itself."""
    parts = name.split(".")
    return ".".join(parts[: 3 if parts[0] == "glow" else 2])


def ring_of_folders(modules: dict[str, Module]) -> list[str]:
    """One chain of folders that import each other in a ring; empty where there is none."""
    graph: dict[str, set[str]] = {}
    for module in modules.values():
        own = folder_of(module.name)
        for _, target in module.imports:
            is_face_of_it = module.is_package and target.startswith(f"{module.name}.")
            if target in modules and folder_of(target) != own and not is_face_of_it:
                graph.setdefault(own, set()).add(folder_of(target))
    return _ring(graph)


def cycle(modules: dict[str, Module]) -> list[str]:
    """One chain of modules that import each other in a ring; empty where there is none."""
    return _ring(
        {
            module.name: {
                target for _, target in module.imports if target in modules and target != module.name
            }
            for module in modules.values()
        }
    )


def _ring(graph: dict[str, set[str]]) -> list[str]:
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


def test_outside_a_folder_its_face_is_imported_and_nothing_behind_it(modules: dict[str, Module]) -> None:
    assert not past_faces(modules), "\n" + "\n".join(past_faces(modules))


def test_no_folders_import_each_other_in_a_ring(modules: dict[str, Module]) -> None:
    assert not ring_of_folders(modules), " imports ".join(ring_of_folders(modules))


def test_no_folder_of_the_product_holds_too_many_modules(modules: dict[str, Module]) -> None:
    sizes = Counter(module.path.parent for module in modules.values() if module.path.parts[0] in FOLDERS)
    assert not {str(folder): size for folder, size in sizes.items() if size > MOST_MODULES}


def test_every_row_of_the_table_is_a_room_that_is_there(modules: dict[str, Module]) -> None:
    assert not [
        name
        for name in ROOMS
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
        ("glow/bad.py", "", "glow.bad is in no room of the table"),
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


def test_an_import_past_a_face_and_a_ring_of_folders_are_found(tmp_path: Path) -> None:
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
    assert past_faces(modules) == [
        "service/live/swap.py:1: imports glow_service.search.pool, past the face of glow_service.search"
    ]
    assert set(ring_of_folders(modules)) == {"glow_service.live", "glow_service.search"}


def test_a_package_is_imported_at_any_depth_and_a_module_behind_it_is_not(tmp_path: Path) -> None:
    files = {
        "glow/index/__init__.py": "",
        "glow/index/columns/__init__.py": "",
        "glow/index/columns/reader.py": "from glow.index.rows import x\n",
        "glow/index/rows.py": "",
        "service/__init__.py": "from glow.index.columns import Columns\nfrom glow.index.columns.reader import Columns\n",
    }
    for name, code in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    assert past_faces(read_modules(tmp_path)) == [
        "service/__init__.py:2: imports glow.index.columns.reader, past the face of glow.index.columns"
    ]


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
