"""files.md: the files of an index, a model, a dataset and the logs, from the code's constants."""

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import glow.collection
from glow.artifact import lock, manifest, model, root
from glow.index import delta, models, settings, version
from glow.index.version import COMPONENTS
from glow.ingest import log, reader, records, state
from glow.query_log import Feedback, LoggedQuery
from glow.text import tokenizer, words
from glow_index_builder.input import lines
from glow_service import writes
from scripts.reference import code, first, page, table

SECTIONS = {
    "Index root": (root, lock, lines),
    "Log of writes": (log, state, reader, records, writes),
    "Index version": (manifest, version, models, settings, delta),
    "Model and re-ranker": (model, tokenizer, words),
}
RECORDS = {"Manifest": manifest.Manifest, "Query log": LoggedQuery, "Feedback log": Feedback}
CONSTANT, FILE = re.compile("[A-Z][A-Z_]*"), re.compile(r"[\w/-]+\.[a-z]+")
ATTRIBUTE = re.compile(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", re.MULTILINE)
MEMBER = re.compile(r"^    (\w+): [^#\n]*#  ?(.*)$", re.MULTILINE)


def files_page() -> str:
    """The files of each kind of directory, and the members of each kind of line."""
    parts = []
    for title, modules in SECTIONS.items():
        parts += [f"## {title}", table(("file", "meaning"), _files(*modules))]
    components = [(code(c.name), code(*c.paths, *c.stays), c.per, first(type(c).__doc__)) for c in COMPONENTS]
    parts += ["## Index components", table(("component", "files", "rows", "meaning"), components)]
    parts += ["## Dataset", inspect.cleandoc(glow.collection.__doc__ or "")]
    for title, kind in RECORDS.items():
        members = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
        pairs = ATTRIBUTE.findall(members) or MEMBER.findall(inspect.getsource(kind))
        rows = [(code(*names.split(", ")), text) for names, text in pairs]
        parts += [f"## {title}", table(("member", "meaning"), rows)]
    return page("Files", "The files that GLOW reads and writes.", *parts)


def _files(*modules: ModuleType) -> Iterator[tuple[str, str]]:
    """The files that constants name, described by the constant's docstring or a sentence that names the file."""
    found: dict[str, str] = {}
    for module in modules:
        tree = ast.parse(inspect.getsource(module))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)]
        told = [each for node in nodes for each in re.split(r"(?<=\.)\s+", ast.get_docstring(node) or "")]
        for name, text in _constants(tree):
            value, is_named = getattr(module, name), name.endswith(("_FILE", "_FOLDER"))
            values = tuple(value.values()) if isinstance(value, dict) else value
            for file in values if isinstance(values, tuple) else (values,):
                if isinstance(file, str) and (is_named or FILE.fullmatch(file)):
                    mention = next((each for each in told if re.search(rf"`{re.escape(file)}[/`]", each)), "")
                    found[file] = found.get(file) or text or mention
    return ((code(file), text) for file, text in found.items())


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Public constants that may name files, each with its docstring."""
    for node, after in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
        text = first(ast.get_docstring(ast.Module([after], [])))
        names = ast.walk(node.targets[0]) if isinstance(node, ast.Assign) else ()
        yield from ((name, text) for name in map(ast.unparse, names) if CONSTANT.fullmatch(name))
