"""Pairs from docstrings of installed Python packages: the first sentence is the query for the rest.

Files are parsed, not imported.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path

from research.debian.pair import Pair, collapsed, first_sentence, make_pair

MAX_PAIRS = 15_000
MAX_OF_A_PACKAGE = 1_000
MIN_REST_WORDS = 30
_MIN_QUERY_WORDS = 4
_SKIPPED = re.compile(r"^(tests?|testing|_vendor|vendored|__pycache__|lib2to3|idlelib|nvidia.*)$")
_SECTION = re.compile(
    r"(?mi)^\s*(args|arguments|parameters|params|returns?|raises|yields|attributes|examples?|usage|references|see also|"
    r"methods|inputs?|outputs?|shape|keyword arguments|other parameters|keywords)\s*:?\s*(\n\s*[-=]{3,})?\s*$"
)
_FIELD_LIST = re.compile(r"(?m)^\s*(:(param|arg|type|returns?|rtype|raises)\b|@param\b).*")
_DIRECTIVE = re.compile(r"(?m)^\s*(\.\. [\w-]+::?.*|>>> .*|\.\.\. .*|[-=~^]{3,}\s*)$")
_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]+?)(?:\s*<[^`]*>)?`")
_CODE_BLOCK = re.compile(r"```.*?(```|\Z)|(?<=:):\s*\n(\s*\n)?(?:[ \t]{2,}.*(?:\n|\Z)|\s*\n)+", re.DOTALL)
_PARAMETER = re.compile(r"^[*`]*\w+[`*]* ?\(.*\) ?:|^[*`]*\w+[`*]*( \(|:)")


def docstring_pairs(folders: list[Path]) -> Iterator[Pair]:
    """Yields pairs of the packages alternately, so that a limit cuts the large ones.

    Args:
        folders: site-packages directories, and those of the standard library.
    """
    packages = [
        islice(_package_pairs(package), MAX_OF_A_PACKAGE)
        for folder in folders
        for package in _packages(folder)
    ]
    seen: set[str] = set()
    for row in zip_longest(*packages):
        for pair in row:
            if pair and pair.text not in seen:
                seen.add(pair.text)
                yield pair
                if len(seen) == MAX_PAIRS:
                    return


def file_pairs(source: str, module: str) -> Iterator[Pair]:
    """Yields the pairs of one Python file; none if it does not parse.

    Args:
        source: the file's text.
        module: dotted name of its module.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in third-party strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    yield from _node_pairs(tree, module)


def prose(docstring: str) -> str:
    """The prose of a docstring before its first section, without markup, directives and sessions."""
    text = _CODE_BLOCK.sub("", docstring)
    for pattern in (_SECTION, _FIELD_LIST):
        if match := pattern.search(text):
            text = text[: match.start()]
    text = _DIRECTIVE.sub("", text)
    return re.sub(r"``?|\*\*", "", _ROLE.sub(lambda match: match[1].rpartition(".")[2], text))


def _node_pairs(node: ast.AST, name: str) -> Iterator[Pair]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if pair := _pair(ast.get_docstring(node) or "", name):
            yield pair
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _node_pairs(child, f"{name}.{child.name}")


def _pair(docstring: str, name: str) -> Pair | None:
    first, _, others = prose(docstring).strip().partition("\n\n")
    query, rest = first_sentence(collapsed(first))
    if len(query.split()) < _MIN_QUERY_WORDS or _PARAMETER.match(query):
        return None
    rest = f"{rest} {others}"
    return make_pair(f"py:{name}", query, name, rest, min_words=MIN_REST_WORDS)


def _packages(folder: Path) -> list[list[tuple[Path, str]]]:
    """The files of each package or module of a directory, with their dotted names."""
    grouped: dict[str, list[tuple[Path, str]]] = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if not any(_SKIPPED.match(part) or part in ("site-packages", "dist-packages") for part in parts[:-1]):
            named = parts[:-1] if parts[-1] == "__init__" else parts
            grouped.setdefault(parts[0], []).append((path, ".".join(named)))
    return list(grouped.values())


def _package_pairs(files: list[tuple[Path, str]]) -> Iterator[Pair]:
    for path, module in files:
        yield from file_pairs(path.read_text(encoding="utf-8", errors="replace"), module)
