"""The modules of a checkout with their imports, and which of these ARCHITECTURE.md forbids, by its table of packages."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

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
ROW = re.compile(r"^\| `([\w.]+)` \|([^|\n]*)\|([^|\n]*)\|$", re.MULTILINE)
BASE_LINE = re.compile(r"^`base` is ((?:.|\n)*?)\.\s", re.MULTILINE)


@dataclass(frozen=True)
class Rule:
    """The allowed imports of one package; None: anything."""

    ours: frozenset[str] | None
    packages: frozenset[str] | None


def read_rules(page: str) -> dict[str, Rule]:
    """The table of ARCHITECTURE.md section 2."""
    found = BASE_LINE.search(page)
    assert found is not None, "ARCHITECTURE.md no longer says what `base` is"
    base = frozenset(re.findall(r"`([\w.]+)`", found[1]))
    return {
        name: Rule(_cell(ours, base), _cell(packages, base)) for name, ours, packages in ROW.findall(page)
    }


def _cell(text: str, base: frozenset[str]) -> frozenset[str] | None:
    if text.strip() == "any":
        return None
    return frozenset(re.findall(r"`([\w.]+)`", text)) | (
        base if re.search(r"\bbase\b", text) else frozenset()
    )


RULES = read_rules((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
OURS = (*FOLDERS.values(), *FOLDERS, *APART, "tests")


@dataclass
class Module:
    """One file: its name, package, and imports, each with its line."""

    name: str
    path: Path
    is_package: bool
    imports: list[tuple[int, str]] = field(default_factory=list)


def read_modules(root: Path) -> dict[str, Module]:
    """Every module of the packages below `root`."""
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
    """The project's module that contains a dotted name; third-party names stay whole."""
    parts = target.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in modules), target)


def _package_of(name: str) -> str | None:
    parts = name.split(".")
    if len(parts) > 1 and parts[0] == "glow":
        return next((known for known in (".".join(parts[:2]),) if known in RULES), None)
    return parts[0] if parts[0] in RULES else None


def violations(modules: dict[str, Module]) -> list[str]:
    """Every import that the table forbids: file, line, import, rule."""
    faults = []
    for module in modules.values():
        own = _package_of(module.name)
        if own is None:
            faults.append(
                f"{module.path}: {module.name} is in no row of the table in ARCHITECTURE.md; add it"
            )
            continue
        faults += [
            f"{module.path}:{line}: imports {target}, but {rule}"
            for line, target in module.imports
            if (rule := _rule_broken(own, target))
        ]
    return faults


def _rule_broken(own: str, target: str) -> str:
    """Why a package may not import a name; "" if it may."""
    top, package, rules = target.split(".")[0], _package_of(target), RULES[own]
    if top in sys.stdlib_module_names or (top in OURS and package == own):
        return ""
    allowed = rules.ours if top in OURS else rules.packages
    if allowed is None or (package if top in OURS else top) in allowed:
        return ""
    listed = ", ".join(sorted((rules.ours or set()) | (rules.packages or set()))) or "nothing"
    return f"{own} may import the standard library and {listed}"


def folder_of(name: str) -> str:
    """The subpackage of a module; a module at a package's top level stands for itself."""
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
