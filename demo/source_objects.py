"""Entries of a module read from its source: nothing in it is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from glow_demo.entries import Entry, describe_bases, tidy_signature

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_PROPERTY_DECORATORS = ("property", "cached_property", "abstractproperty", "DynamicClassAttribute")
_EXCEPTION_ENDINGS = ("Error", "Exception", "Warning")


def source_entries(module_name: str, source: Path) -> list[Entry]:
    """Describe the public names that a module's source defines.

    Args:
        module_name: The module's dotted name.
        source: Its Python file.

    Returns:
        The module, its classes with their members, and its functions, in the order of the source.
    """
    tree = ast.parse(source.read_bytes())
    entries = [Entry(module_name, module_name, "module", module_name, "", _doc(tree))]
    definitions = _definitions(tree.body)
    declared = _declared_names(tree)
    for name, node in definitions.items():
        is_public = name in declared if declared is not None else not name.startswith("_")
        if not is_public:
            continue
        title = f"{module_name}.{name}"
        if isinstance(node, ast.ClassDef):
            entries.extend(_class_entries(title, module_name, node, definitions))
        else:
            entries.append(_function_entry(title, module_name, node))
    return entries


def _definitions(body: list[ast.stmt]) -> dict[str, _Definition]:
    """Definitions by name, those under `if` and `try` included; of several, the first with a docstring."""
    found: dict[str, _Definition] = {}
    for node in _statements(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            known = found.get(node.name)
            if known is None or (not _doc(known) and _doc(node)):
                found[node.name] = node
    return found


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements(node.body)
            yield from _statements(node.orelse)
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from _statements(node.body + handlers + node.orelse)
        else:
            yield node


def _declared_names(tree: ast.Module) -> set[str] | None:
    """The names in `__all__` that are written out in the source, or None where there is no such list."""
    names: set[str] | None = None
    for node in _statements(tree.body):
        target, value = _all_assignment(node)
        if target and isinstance(value, ast.List | ast.Tuple | ast.BinOp):
            strings = (part.value for part in ast.walk(value) if isinstance(part, ast.Constant))
            names = (names or set()) | {string for string in strings if isinstance(string, str)}
    return names


def _all_assignment(node: ast.stmt) -> tuple[bool, ast.expr | None]:
    """Whether a statement sets or extends `__all__`, and the value that it adds."""
    if isinstance(node, ast.Assign):
        return any(_name_of(target) == "__all__" for target in node.targets), node.value
    if isinstance(node, ast.AugAssign):
        return _name_of(node.target) == "__all__", node.value
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
        function = node.value.func
        is_extend = isinstance(function, ast.Attribute) and _name_of(function.value) == "__all__"
        return is_extend, node.value.args[0]
    return False, None


def _class_entries(
    title: str, module_name: str, node: ast.ClassDef, definitions: dict[str, _Definition]
) -> Iterator[Entry]:
    bases = [_name_of(base) for base in node.bases]
    is_exception = any(base.endswith(_EXCEPTION_ENDINGS) for base in bases)
    members = _members(node, definitions)
    constructor = members.get("__init__", members.get("__new__"))
    signature = _signature(constructor, drop_self=True) if isinstance(constructor, _Function) else ""
    kind = "exception" if is_exception else "class"
    yield Entry(title, title, kind, module_name, signature, _doc(node), describe_bases(bases))
    for name, member in sorted(members.items()):
        if name.startswith("_") or isinstance(member, ast.ClassDef):
            continue
        entry = _function_entry(f"{title}.{name}", module_name, member, in_class=True)
        if entry.kind != "property" or entry.doc:
            yield entry


def _members(node: ast.ClassDef, definitions: dict[str, _Definition]) -> dict[str, _Definition]:
    """A class's own members and those of its private bases, which users only meet through it."""
    members = _definitions(node.body)
    for base in map(_name_of, node.bases):
        parent = definitions.get(base)
        if base.startswith("_") and isinstance(parent, ast.ClassDef) and parent is not node:
            members = _members(parent, definitions) | members
    return members


def _function_entry(title: str, module_name: str, node: _Definition, *, in_class: bool = False) -> Entry:
    decorators = [_name_of(decorator) for decorator in node.decorator_list]
    kind = "method" if in_class else "function"
    if any(decorator.endswith(_PROPERTY_DECORATORS) for decorator in decorators):
        kind = "property"
    elif any(decorator.endswith("SpecialForm") for decorator in decorators):
        kind = "data"  # typing writes Union, Optional and their kin as decorated functions
    signature = ""
    if kind in ("method", "function") and isinstance(node, _Function):
        signature = _signature(node, drop_self=in_class and "staticmethod" not in decorators)
    return Entry(title, title, kind, module_name, signature, _doc(node))


def _signature(node: _Function, *, drop_self: bool) -> str:
    text = ast.unparse(node.args)
    if drop_self and not text.startswith("*"):
        # The receiver stands first; a slash right behind it would be left without meaning.
        text = text.partition(", ")[2]
        text = "" if text == "/" else text.removeprefix("/, ")
    return tidy_signature(text)


def _name_of(node: ast.expr) -> str:
    """The last part of a dotted name, seen through calls and subscripts; "" for other expressions."""
    if isinstance(node, ast.Call):
        return _name_of(node.func)
    if isinstance(node, ast.Subscript):
        return _name_of(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _doc(node: ast.AST) -> str:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    return (ast.get_docstring(node) or "").strip()
