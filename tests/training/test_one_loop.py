"""There is one training loop: gradients are taken in it, and nowhere else."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALLOWED = {("glow/training/run/loop.py", "_gradients")}


def backward_calls(tree: ast.AST, function: str = "") -> Iterator[str]:
    """The innermost functions that call `.backward(...)`."""
    for node in ast.iter_child_nodes(tree):
        own = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "backward"
        ):
            yield own
        yield from backward_calls(node, own)


def test_gradients_are_taken_in_one_place() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), function)
        for folder in ("glow", "research", "model_export")
        for path in (ROOT / folder).rglob("*.py")
        for function in backward_calls(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == ALLOWED
