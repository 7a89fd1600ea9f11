"""The documentation of the Python that runs this, as JSON lines that GLOW can index.

    python -m glow_demo.python_docs --out python-docs.jsonl

One document for each public module, class, function, method and documented property of the standard
library. The rules:

- **Modules**: every public top-level module, and the submodules that the library reference documents.
  Left out are the modules that act on import (`antigravity`, `this`), programs (`idlelib`, `turtledemo`),
  tests, and internals that only look public (`posix`, which users know as `os`).
- **Reading**: a Python module is parsed, not run. Imported are only built-in and extension modules, and a
  fixed list of harmless modules whose names come from C or are made at run time (`IMPORTED` in
  `demo/stdlib_modules.py`).
- **Names**: those in `__all__`, else those without a leading underscore. An object with several names has
  one document, under the shortest: `json.JSONDecoder`, not `json.decoder.JSONDecoder`; `os.remove`, not
  `posix.remove`. Methods of a private base appear under the public class: `socket.socket.recv`.
- **Without a docstring**: a property is left out; a function or method has its name and signature as its
  text, a class also the names of its bases, and a module lists what it contains.

The same Python gives the same bytes on every run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from glow.commands import counted
from glow_demo.addresses import address_of
from glow_demo.anchors import collect_anchors
from glow_demo.entries import Entry
from glow_demo.live_objects import live_entries
from glow_demo.source_objects import source_entries
from glow_demo.stdlib_modules import Module, stdlib_modules

# Aliases that are in common use, unlike the name in the definition (`ReferenceType`, `XML`).
_USUAL_ALIASES = frozenset({"weakref.ref", "xml.etree.ElementTree.fromstring"})


def python_documents() -> Iterator[dict[str, object]]:
    """Extract the documents, sorted by title.

    Yields:
        Records with the keys `_id`, `url`, `title`, `anchor` (list), `clicked_queries` (empty list) and
        `text`, and the metadata `kind` (one of `glow_demo.entries.KINDS`) and `module`. Ids are unique.
    """
    entries = _describe_bare_modules(_one_per_object(_read_all(stdlib_modules())))
    anchors = collect_anchors(entries)
    for entry in entries:
        yield {
            "_id": entry.title,
            "url": address_of(entry),
            "title": entry.title,
            "anchor": anchors.get(entry.title, []),
            "clicked_queries": [],
            "text": entry.text,
            "kind": entry.kind,
            "module": entry.module,
        }


def _read_all(modules: Iterable[Module]) -> Iterator[Entry]:
    for module in modules:
        if module.source is None or module.is_imported:
            yield from live_entries(module.name)
        else:
            yield from source_entries(module.name, module.source)


def _one_per_object(entries: Iterable[Entry]) -> list[Entry]:
    """Keep of each object the name that users know, and of each name one object; sorted by title."""
    by_origin: dict[str, Entry] = {}
    for entry in sorted(entries, key=_preference):
        by_origin.setdefault(entry.origin, entry)
    by_title: dict[str, Entry] = {}
    for entry in by_origin.values():
        by_title.setdefault(entry.title, entry)
    return [by_title[title] for title in sorted(by_title)]


def _preference(entry: Entry) -> tuple[int, bool, bool, str, str]:
    """Shortest name first, then the name that its definition bears (`array.array`, not `array.ArrayType`)."""
    name_in_module = entry.title.removeprefix(f"{entry.module}.")
    is_alias = not f".{entry.origin}".endswith(f".{name_in_module}")
    is_usual = entry.title in _USUAL_ALIASES
    return entry.title.count("."), not is_usual, is_alias, entry.title, entry.origin


def _describe_bare_modules(entries: Sequence[Entry]) -> list[Entry]:
    """Give modules without a docstring a note of what they contain; drop those that contain nothing."""
    contents: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        parent, _, name = entry.title.rpartition(".")
        if entry.kind == "module":
            contents[parent].append(name)
        elif entry.kind not in ("method", "property"):
            contents[entry.module].append(name)
    described = []
    for entry in entries:
        if entry.kind == "module" and not entry.doc:
            if not contents[entry.title]:
                continue
            entry = replace(entry, note=f"Contains {', '.join(contents[entry.title])}.")
        described.append(entry)
    return described


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the documents to a file or to standard output, and their number to standard error.

    Args:
        arguments: Command-line arguments without the program's name; those of the process by default.

    Returns:
        The exit status, 0.
    """
    parser = argparse.ArgumentParser(
        prog="python -m glow_demo.python_docs", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write (default: standard output)")
    out: Path | None = parser.parse_args(arguments).out
    # ASCII with escapes, so that the bytes do not depend on the terminal's encoding.
    lines = [json.dumps(document) + "\n" for document in python_documents()]
    if out is None:
        sys.stdout.writelines(lines)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("".join(lines), encoding="ascii")
    version = ".".join(map(str, sys.version_info[:3]))
    sys.stderr.write(f"{counted(len(lines), 'document')} from the standard library of Python {version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
