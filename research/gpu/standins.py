"""Stand-ins for packages that the machine lacks and that nothing of these runs calls.

`glow.training` also reads ONNX models and mines with an index, so its modules import what a machine with torch alone does not have
(onnx, onnxruntime, faiss, matplotlib). A stand-in can be imported, and says its package's name as soon as it is called.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["OPTIONAL", "stand_in"]

OPTIONAL = ("onnx", "onnxruntime", "faiss", "matplotlib")


class _Named(type):
    """Of the classes that a stand-in gives: a call or an attribute of one says which package is missing."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        raise ImportError(f"{cls.__module__} is not installed here")

    def __or__(cls, other: Any) -> Any:  # in annotations
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {"__module__": self.__name__.partition(".")[0]})


class _Finder(MetaPathFinder, Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.names:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: attributes are made when they are asked for."""


def stand_in(names: Sequence[str] = OPTIONAL) -> list[str]:
    """Puts stand-ins in place of those of the packages that are not installed, and gives their names."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        sys.meta_path.append(_Finder(missing))
    return missing
