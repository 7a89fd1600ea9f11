"""Which modules of the standard library are documented, and which of them may be imported."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glow_demo.addresses import SUBMODULE_PAGES

# Importing these has no effect that a user could notice, and only a live module knows all its names: they
# come from C, from private submodules, or are made while the module runs. Every other Python module is read.
IMPORTED = frozenset(
    """
    ast asyncio bisect bz2 calendar codecs collections collections.abc concurrent.futures contextvars csv ctypes
    curses curses.panel datetime decimal email.parser email.policy email.utils functools getpass hashlib heapq
    hmac importlib importlib.abc importlib.machinery importlib.metadata importlib.resources importlib.util inspect
    io json locale lzma multiprocessing operator os os.path pathlib pickle queue random re reprlib secrets signal
    socket sqlite3 ssl string struct tarfile threading tomllib tracemalloc types unittest warnings weakref
    xml.etree.ElementTree xml.parsers.expat zipfile zoneinfo
    """.split()
)

SKIPPED = frozenset(
    """
    antigravity this
    idlelib turtledemo test lib2to3 distutils ensurepip pydoc_data encodings
    posix nt posixpath ntpath genericpath nturl2path pyexpat opcode sre_compile sre_constants sre_parse
    xxsubtype xxlimited xxlimited_35
    """.split()
)


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the standard library.

    Attributes:
        name: Its dotted public name.
        source: Its Python file, or None where it is compiled into an extension or the interpreter.
        is_imported: Whether it is read from the live module rather than from its source.
    """

    name: str
    source: Path | None
    is_imported: bool


def stdlib_modules() -> Iterator[Module]:
    """List the public modules of the Python that runs this, by name, importing none.

    Yields:
        Each module once: no private name, no test, nothing in `SKIPPED`.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    for name in sorted(sys.stdlib_module_names):
        if not _is_wanted(name):
            continue
        source = _source_of(folder, name)
        if source is not None:
            yield from _with_submodules(name, source)
        elif importlib.util.find_spec(name) is not None:
            yield Module(name, None, is_imported=True)
    yield Module("os.path", None, is_imported=True)


def _is_wanted(name: str) -> bool:
    is_documented = name in SUBMODULE_PAGES or "." not in name
    is_private = name.startswith("_") and name != "__future__"
    return is_documented and not is_private and name not in SKIPPED


def _source_of(folder: Path, name: str) -> Path | None:
    """The file of a module whose last name is `name`, if it is written in Python."""
    return next((p for p in (folder / f"{name}.py", folder / name / "__init__.py") if p.is_file()), None)


def _with_submodules(name: str, source: Path) -> Iterator[Module]:
    yield Module(name, source, name in IMPORTED)
    if source.name != "__init__.py":
        return
    for found in sorted(info.name for info in pkgutil.iter_modules([str(source.parent)])):
        child = _source_of(source.parent, found)
        if child is not None and _is_wanted(f"{name}.{found}"):
            yield from _with_submodules(f"{name}.{found}", child)
