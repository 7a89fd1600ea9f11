"""Lines of each package, and other counts of the code, with bounds that only fall."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).parent.parent
PRODUCT = ("glow", "service", "index_builder", "model_export")
LONGEST_FUNCTION = 60
PACKAGES = {
    "glow/text": ("glow/text",),
    "glow/artifact, storage, ingest": ("glow/artifact", "glow/storage.py", "glow/ingest"),
    "glow/index": ("glow/index",),
    "glow/search, runtime": ("glow/search", "glow/runtime"),
    "glow/nn": ("glow/nn", "glow/encoders.py"),
    "glow/training": ("glow/training",),
    "glow/evaluation": ("glow/evaluation",),
    "glow/client, contract, adapters": ("glow/client", "glow/contract.py", "glow/adapters"),
    "index_builder": ("index_builder",),
    "model_export": ("model_export",),
    "service": ("service",),
    "product": PRODUCT,
    "tests": ("tests",),
    "research": ("research",),
    "benchmarks": ("benchmarks",),
    "scripts": ("scripts",),
}
"""Name of a count of lines -> its directories."""
PARTS = [name for name in PACKAGES if name not in ("product", "tests", "research", "benchmarks", "scripts")]
BOUNDS = {
    "glow/text": 2_137,
    "glow/artifact, storage, ingest": 1_975,
    "glow/index": 9_586,
    "glow/search, runtime": 2_516,
    "glow/nn": 1_426,
    "glow/training": 5_274,
    "glow/evaluation": 1_683,
    "glow/client, contract, adapters": 1_919,
    "index_builder": 7_549,
    "model_export": 2_550,
    "service": 8_837,
    "product": 47_023,
    "tests": 41_423,
    "research": 3_532,
    "benchmarks": 3_311,
    "scripts": 1_322,
    "the rest of glow": 1_571,
    "files of the product": 236,
    "commands": 33,
    "functions over 60 lines": 0,
}
"""Present counts. They only fall; `--lower` writes those that fell."""


def main(
    lower: Annotated[bool, typer.Option("--lower", help="Write the counts that fell as bounds.")] = False,
) -> None:
    """Prints every count with its bound, and fails if one is exceeded."""
    numbers = counts()
    code = Path(__file__).read_text(encoding="utf-8")
    for name, number in numbers.items():
        typer.echo(f"{number:>7,} of at most {BOUNDS[name]:>7,}  {name}")
        if number < BOUNDS[name]:
            code = code.replace(f'"{name}": {BOUNDS[name]:_},', f'"{name}": {number:_},')
    if lower:
        Path(__file__).write_text(code, encoding="utf-8")
    if any(number > BOUNDS[name] for name, number in numbers.items()):
        raise typer.Exit(1)


def counts() -> dict[str, int]:
    """Name of each count -> its value."""
    product = list(_files(*PRODUCT))
    commands = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    lines = {
        name: sum(path.read_text(encoding="utf-8").count("\n") for path in _files(*tops))
        for name, tops in PACKAGES.items()
    }
    return {
        **lines,
        "the rest of glow": lines["product"] - sum(lines[name] for name in PARTS),
        "files of the product": len(product),
        "commands": len(re.findall(r"^## `?glow ", commands, re.MULTILINE)),
        "functions over 60 lines": sum(
            length > LONGEST_FUNCTION for path in product for length in _function_lengths(path)
        ),
    }


def _files(*tops: str) -> Iterator[Path]:
    return (
        path
        for top in tops
        for path in sorted({*ROOT.glob(top), *(ROOT / top).rglob("*.py")})
        if path.is_file()
    )


def _function_lengths(path: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


if __name__ == "__main__":
    typer.run(main)
