"""Entries of an imported module: the names that only exist once it has run, such as those written in C."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
import warnings
from collections.abc import Iterator

from glow_demo.entries import Entry, describe_bases, tidy_signature

_ROUTINES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodType,
)
_DATA_DESCRIPTORS = (
    property,
    functools.cached_property,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.DynamicClassAttribute,
)

# Names that the library reference documents and `__all__` forgets; a Python without one of them skips it.
MISSING_FROM_ALL = {
    "asyncio": "TaskGroup",
    "codecs": "unregister",
    "concurrent.futures": "InvalidStateError",
    "email.utils": "localtime quote",
    "hashlib": "scrypt",
    "importlib": "find_loader",
    "importlib.metadata": "EntryPoint EntryPoints PackagePath",
    "locale": "bindtextdomain delocalize dgettext gettext localize nl_langinfo textdomain",
    "os": "PathLike _exit process_cpu_count",
    "tarfile": "AbsoluteLinkError AbsolutePathError FilterError LinkOutsideDestinationError"
    " OutsideDestinationError SpecialFileError data_filter fully_trusted_filter tar_filter",
}

# The C base of `socket.socket` under a name of its own: the same methods once more.
_PRIVATE_IN_ALL = {"socket": "SocketType"}


def live_entries(module_name: str) -> list[Entry]:
    """Import a module and describe its public names.

    Args:
        module_name: A module that is safe to import.

    Returns:
        The module, its classes with their members, and its functions; nothing where it cannot be imported
        here (an optional part of Python that was not built).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated modules say so on import; readers of the docs know
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            return []
        entries = [Entry(module_name, module_name, "module", module_name, "", _own_doc(module))]
        for name in _public_names(module, module_name):
            entries.extend(_describe(module_name, name, getattr(module, name, None)))
    return entries


def _public_names(module: types.ModuleType, module_name: str) -> list[str]:
    """The names in `__all__`, or else those that are public and defined by the module or its private parts."""
    declared = getattr(module, "__all__", None)
    if declared is not None:
        public = {name for name in declared if not name.startswith("_")}
        forgotten = MISSING_FROM_ALL.get(module_name, "").split()
        return sorted(public.union(forgotten) - {_PRIVATE_IN_ALL.get(module_name)})
    return [
        name
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and _belongs(value, module_name)
    ]


def _belongs(value: object, module_name: str) -> bool:
    home = getattr(value, "__module__", None)
    if not isinstance(home, str):
        return True
    return (
        home == module_name
        or home.startswith(f"{module_name}.")
        or _is_private(home)
        or module_name == "builtins"
    )


def _describe(module_name: str, name: str, value: object) -> Iterator[Entry]:
    title = name if module_name == "builtins" else f"{module_name}.{name}"
    if isinstance(value, type):
        yield from _class_entries(title, module_name, value)
    elif isinstance(value, _ROUTINES) or isinstance(getattr(value, "__wrapped__", None), types.FunctionType):
        origin = _routine_origin(title, name, value)
        yield Entry(title, origin, "function", module_name, _signature(value, drop_self=False), _doc(value))


def _routine_origin(title: str, name: str, value: object) -> str:
    """The definition behind a module's function; bound methods count as the method of their class."""
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        cls = owner if isinstance(owner, type) else type(owner)
        # `calendar.month` is `TextCalendar.formatmonth`: another name is another thing to look for.
        return f"{_class_origin(cls)}.{name}" if getattr(value, "__name__", "") == name else title
    home, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    return f"{home}.{qualname}" if home and qualname and "<locals>" not in qualname else title


def _class_origin(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _class_entries(title: str, module_name: str, cls: type) -> Iterator[Entry]:
    kind = "exception" if issubclass(cls, BaseException) else "class"
    origin = _class_origin(cls)
    note = describe_bases(base.__name__ for base in cls.__bases__)
    yield Entry(title, origin, kind, module_name, _signature(cls, drop_self=False), _own_doc(cls), note)
    seen: set[str] = set()
    for owner in _speaks_for(cls, module_name):
        for name, member in sorted(vars(owner).items()):
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield from _member_entries(f"{title}.{name}", f"{origin}.{name}", module_name, member)


def _speaks_for(cls: type, module_name: str) -> Iterator[type]:
    """A class and those private bases that no public class between them speaks for already."""
    bases = cls.__mro__[1:]
    public = [base for base in bases if not _is_private_base(base, module_name)]
    yield cls
    for base in bases:
        if base not in public and not any(issubclass(other, base) for other in public):
            yield base


def _is_private_base(base: type, module_name: str) -> bool:
    """Whether users know the methods of `base` only through its subclasses (`_socket.socket`)."""
    if base.__name__.startswith("_"):
        return True
    is_exported = getattr(sys.modules[module_name], base.__name__, None) is base
    return _is_private(base.__module__) and not is_exported


def _is_private(module_name: str) -> bool:
    return any(part.startswith("_") for part in module_name.split("."))


def _member_entries(title: str, origin: str, module_name: str, member: object) -> Iterator[Entry]:
    if isinstance(member, _DATA_DESCRIPTORS):
        doc = _doc(member)
        if doc and not doc.startswith("Alias for field number"):  # what namedtuple says of every field
            yield Entry(title, origin, "property", module_name, "", doc)
        return
    is_static = isinstance(member, staticmethod)
    routine = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    if isinstance(routine, _ROUTINES) or isinstance(
        getattr(routine, "__wrapped__", None), types.FunctionType
    ):
        drop_self = not is_static and not isinstance(routine, types.BuiltinFunctionType)
        yield Entry(
            title, origin, "method", module_name, _signature(routine, drop_self=drop_self), _doc(routine)
        )


def _own_doc(value: object) -> str:
    """The docstring of a class or module itself; a class does not speak for its base."""
    doc = vars(value).get("__doc__")
    return inspect.cleandoc(doc).strip() if isinstance(doc, str) else ""


def _doc(value: object) -> str:
    try:
        doc = inspect.getdoc(value)
    except (AttributeError, TypeError):  # odd descriptors of C types
        return ""
    return doc.strip() if isinstance(doc, str) else ""


def _signature(value: object, *, drop_self: bool) -> str:
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]  # refused below where not callable
    except (ValueError, TypeError, AttributeError):  # none, or a default that only exists later (curses)
        return ""
    parameters = list(signature.parameters.values())
    if drop_self and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        parameters = parameters[1:]
    shown = inspect.Signature(parameters)  # without the return annotation
    return tidy_signature(str(shown)[1:-1])
