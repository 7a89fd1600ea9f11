"""One documented object of the standard library, and the text made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

KINDS = ("module", "class", "exception", "function", "method", "property", "data")

_MAX_SIGNATURE_CHARS = 300
# C docstrings without a machine-readable signature open with one: "range(stop) -> range object".
_LEADING_SIGNATURE = re.compile(
    r"^[\w.]+\([^()]*(?:\([^()]*\)[^()]*)*\)(?:\s*(?:->|--|=>)\s*[^\n.]*)?[.:]?\s*"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z'\"`(])")


@dataclass(frozen=True, slots=True)
class Entry:
    """A module, class, function, method or property as its users know it.

    Attributes:
        title: The qualified name that users write, `shutil.rmtree`, `str.split`.
        origin: The qualified name of its definition; two titles with one origin are one object.
        kind: One of `KINDS`.
        module: The public module that its title belongs to.
        signature: Its parameters in brackets without `self`, or "" where unknown.
        doc: Its cleaned docstring, or "" where it has none.
        note: What else is known of an object without a docstring: a class's bases, a module's contents.
    """

    title: str
    origin: str
    kind: str
    module: str
    signature: str
    doc: str
    note: str = ""

    @property
    def text(self) -> str:
        """The body of its document: the signature line, then the docstring; at least its name."""
        head = f"{self.title}{self.signature}" if self.signature or not self.doc else ""
        return "\n\n".join(part for part in (head, self.doc or self.note) if part)

    @property
    def summary(self) -> str:
        """The first sentence of its docstring on one line, "" where there is none."""
        body = _LEADING_SIGNATURE.sub("", self.doc, count=1)
        if not body or body.startswith(">>>"):  # the line of the signature said it all
            body = self.doc
        paragraph = " ".join(body.split("\n\n", 1)[0].split())
        return _SENTENCE_END.split(paragraph, maxsplit=1)[0]


def describe_bases(bases: Iterable[str]) -> str:
    """Say what a class without a docstring is derived from, the one thing known of it.

    Args:
        bases: Names of its base classes as written or qualified; `object` and private ones are ignored.

    Returns:
        A sentence, or "" where there is nothing to say.
    """
    named = [
        base for base in bases if base and base != "object" and not base.rpartition(".")[2].startswith("_")
    ]
    return f"A subclass of {' and '.join(named)}." if named else ""


def tidy_signature(parameters: str) -> str:
    """Bracket parameters in the form that is shown.

    Args:
        parameters: Their list as in source, without the receiver of a method: `a, /, *, b=1`.

    Returns:
        `(a, /, *, b=1)`, object addresses hidden, at most about 300 characters.
    """
    # Defaults such as <object object at 0x7f...> change with every run and tell a reader nothing.
    shown = re.sub(r"(?<!')<[^<>]*(?:<[^<>]*>[^<>]*)*>(?!')", "...", parameters)
    if len(shown) > _MAX_SIGNATURE_CHARS:
        shown = shown[:_MAX_SIGNATURE_CHARS].rpartition(", ")[0] + ", ..."
    return f"({shown})"
