"""Counts in the code that must not grow without a reason: lines, files, long functions, and uses of component names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import typer

ROOT = Path(__file__).parent.parent
PRODUCT = ("glow", "service", "index_builder", "model_export")
COMPONENTS = ROOT / "glow" / "index"
READERS = (
    "DocumentsView", "FilteredColumns", "PassageMap", "ImpactsView", "SpellingTable", "LearnedView", "StatesView", "DenseView",
)  # fmt: skip
"""The functions that read components."""
LONGEST_FUNCTION = 60
BOUNDS = {
    "lines of the product": 66_140,
    "files of the product": 571,
    "lines of tests": 59_840,
    "readers that may be None, outside their packages": 0,
    "files with the identifier `learned`": 11,
    "folders with the identifier `learned`": 7,
    "functions over 60 lines": 0,
    "lines of glow.training": 7_930,
    "lines of model_export": 4_090,
    "lines of research and scripts": 10_530,
    "files of configs": 10,
}
"""Present counts, rounded up. A change that reduces a count lowers its bound."""


def main() -> None:
    """Prints every count with its bound; returns 1 if one is exceeded."""
    found = counts()
    for name, count in found.items():
        typer.echo(f"{count:>7,} of at most {BOUNDS[name]:>7,}  {name}")
    if any(count > BOUNDS[name] for name, count in found.items()):
        raise typer.Exit(1)


def counts() -> dict[str, int]:
    """Name of each count -> its value."""
    product = [path for top in PRODUCT for path in sorted((ROOT / top).rglob("*.py"))]
    tests = sorted((ROOT / "tests").rglob("*.py"))
    learned = [path for path in product if _has_identifier(path, "learned")]
    found = (
        sum(_lines(path) for path in product),
        len(product),
        sum(_lines(path) for path in tests),
        sum(
            len(re.findall(rf"\b(?:{'|'.join(READERS)}) \| None", _text(path)))
            for path in product
            if COMPONENTS not in path.parents
        ),
        len(learned),
        len({path.parent for path in learned}),
        sum(length > LONGEST_FUNCTION for path in product for length in _functions(path)),
        *(_lines_of(*tops) for tops in (("glow/training",), ("model_export",), ("research", "scripts"))),
        sum(path.is_file() for path in (ROOT / "configs").rglob("*")),
    )
    return dict(zip(BOUNDS, found, strict=True))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _lines(path: Path) -> int:
    return _text(path).count("\n")


def _lines_of(*tops: str) -> int:
    return sum(_lines(path) for top in tops for path in (ROOT / top).rglob("*.py"))


def _has_identifier(path: Path, name: str) -> bool:
    """Whether the code has this identifier as a variable, an attribute, an argument or a keyword."""
    for node in ast.walk(ast.parse(_text(path))):
        match node:
            case (
                ast.Name(id=found) | ast.Attribute(attr=found) | ast.arg(arg=found) | ast.keyword(arg=found)
            ) if found == name:
                return True
    return False


def _functions(path: Path) -> Iterator[int]:
    """Lines of every function."""
    for node in ast.walk(ast.parse(_text(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


if __name__ == "__main__":
    typer.run(main)
