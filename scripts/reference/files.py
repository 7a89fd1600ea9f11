"""files.md: the files of an index, a model, a dataset and the logs, as the code declares them."""

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import glow.collection
from glow.artifact import learned, lock, manifest, model, pinned, reranker, root
from glow.feedback import Feedback
from glow.index import delta, models, settings, version
from glow.index.components import COMPONENTS
from glow.ingest import clock, log, reader, state
from glow.query_log import LoggedQuery
from glow.text import tokenizer, words
from glow_index_builder.input import rejects
from glow_service.writes import replicas
from scripts.reference import code, first, page, table

__all__ = ["files_page"]

SECTIONS = {
    "Index root": (root, pinned, lock, rejects),
    "Log of writes": (log, state, reader, clock, replicas),
    "Index version": (manifest, version, models, settings, delta),
    "Model": (model, learned, tokenizer, words),
    "Re-ranker": (reranker,),
}
RECORDS = {"Manifest": manifest.Manifest, "Query log": LoggedQuery, "Feedback log": Feedback}
ATTRIBUTE = re.compile(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def files_page() -> str:
    """The files of each kind of folder, and the members of each kind of line."""
    parts = []
    for title, modules in SECTIONS.items():
        parts += [f"## {title}", table(("file", "meaning"), _files(*modules))]
    components = [(code(c.name), code(*c.paths, *c.stays), c.per, first(type(c).__doc__)) for c in COMPONENTS]
    parts += ["## Index components", table(("component", "files", "rows", "meaning"), components)]
    parts += [
        "## Dataset",
        *(" ".join(part.split()) for part in (glow.collection.__doc__ or "").split("\n\n")),
    ]
    for title, kind in RECORDS.items():
        members = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
        rows = [(code(*names.split(", ")), text) for names, text in ATTRIBUTE.findall(members)]
        parts += [f"## {title}", table(("member", "meaning"), rows)]
    return page("Files", "The files that GLOW reads and writes.", *parts)


def _files(*modules: ModuleType) -> Iterator[tuple[str, str]]:
    """The files that constants name; the first text of each is taken."""
    found: dict[str, str] = {}
    for module in modules:
        for name, text in _constants(module):
            value = getattr(module, name)
            is_folder, is_known = name.endswith("_FOLDER"), name.endswith(("_FILE", "_FOLDER"))
            for file in (
                value.values() if isinstance(value, dict) else [value] if isinstance(value, str) else value
            ):
                if isinstance(file, str) and (is_known or "." in file):
                    found[file + "/" * is_folder] = found.get(file) or text or _mention(module, file)
    return ((code(file), text) for file, text in found.items())


def _constants(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Public constants that hold texts, each with the docstring behind it, or what a docstring of the module says."""
    body = ast.parse(inspect.getsource(module)).body
    for node, after in zip(body, [*body[1:], body[0]], strict=True):
        for target in ast.walk(node.targets[0]) if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Name) and isinstance(getattr(module, target.id), str | tuple | dict):
                yield target.id, _docstring(after)


def _docstring(node: ast.stmt) -> str:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return first(ast.literal_eval(node.value)) if is_text else ""


def _mention(module: ModuleType, file: str) -> str:
    """The first sentence of a docstring of the module or its classes that names a file."""
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    texts = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.Module | ast.ClassDef)]
    sentences = [each for text in texts for each in re.split(r"(?<=\.)\s+", text)]
    return next((each for each in sentences if f"`{file}" in each), "")
