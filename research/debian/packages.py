"""Pairs from apt's lists: a package's short description is the query for its long one."""

import gzip
import lzma
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from research.debian.pair import Pair, make_pair

LISTS = Path("var/lib/apt/lists")
_HELPER = Path("/usr/lib/apt/apt-helper")
_SIBLING = re.compile(r"-(dev|dbg|dbgsym|doc|data|common|bin|utils|tools|examples|headers)$")
_KEY_PARAGRAPH_WORDS = 12

Stanza = dict[str, str]


def package_pairs(root: Path) -> Iterator[Pair]:
    """Yields one pair per description: of packages with the same text, the program or the shortest name stays.

    Args:
        root: directory that holds `var/lib/apt/lists` (`/` on a live system).
    """
    descriptions = _descriptions(root)
    stanzas_found: list[tuple[Stanza, str]] = []
    for path in sorted((root / LISTS).glob("*_Packages*")):
        for stanza in stanzas(read_list(path)):
            text = descriptions.get(stanza.get("Description-md5", ""), stanza.get("Description", ""))
            if stanza.get("Package") and text:
                stanzas_found.append((stanza, text))
    seen: set[str] = set()
    for stanza, text in sorted(stanzas_found, key=lambda item: _rank(item[0]["Package"])):
        name = stanza["Package"]
        keys = _keys(name, text)
        if not seen.isdisjoint(keys):
            continue
        seen.update(keys)
        short, long = split_description(text)
        pair = make_pair(f"deb:{name}", short, name, long, stanza.get("Homepage", ""))
        if pair:
            yield pair


def read_list(path: Path) -> str:
    """Reads one of apt's lists, compressed or not; lz4 needs apt's own helper.

    Returns:
        The text; "" if the compression is not supported here.
    """
    if path.suffix == ".lz4":
        if not _HELPER.exists():
            return ""
        command = [str(_HELPER), "cat-file", str(path)]
        data = subprocess.run(command, capture_output=True, check=True).stdout
    elif path.suffix == ".gz":
        data = gzip.decompress(path.read_bytes())
    elif path.suffix == ".xz":
        data = lzma.decompress(path.read_bytes())
    else:
        data = path.read_bytes()
    return data.decode("utf-8", errors="replace")


def stanzas(text: str) -> Iterator[Stanza]:
    """Yields the stanzas of a control file as field -> value, with continuation lines joined by line breaks."""
    for block in text.split("\n\n"):
        stanza: Stanza = {}
        field = ""
        for line in block.splitlines():
            if line[:1].isspace():
                stanza[field] += "\n" + line[1:]
            else:
                field, _, value = line.partition(":")
                field = "Description" if field == "Description-en" else field
                stanza[field] = value.strip()
        if stanza:
            yield stanza


def split_description(text: str) -> tuple[str, str]:
    """Splits a description into its short line and its long text, in which a single dot is an empty line."""
    short, _, long = text.partition("\n")
    return short, re.sub(r"(?m)^\s*\.$", "", long)


def _descriptions(root: Path) -> dict[str, str]:
    """Description-md5 -> short line and long text."""
    found = {}
    for path in sorted((root / LISTS).glob("*_Translation-en*")):
        for stanza in stanzas(read_list(path)):
            if "Description" in stanza:
                found[stanza.get("Description-md5", "")] = stanza["Description"]
    return found


def _keys(name: str, text: str) -> set[str]:
    """Keys that sibling packages share: the first paragraph (or all of a short text), or the text without their names.

    The second finds generated texts of thousands of packages ("contains the source for the Rust … crate").
    """
    short, long = split_description(text)
    first = re.split(r"\n\s*\n", long.strip())[0]
    chosen = first if len(first.split()) >= _KEY_PARAGRAPH_WORDS else long
    own = {*_letters(name), *_letters(short)}
    return {" ".join(_letters(chosen)), "~" + " ".join(word for word in _letters(long) if word not in own)}


def _letters(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _rank(name: str) -> tuple[int, int, str]:
    """Sort key: the program before its library, and both before their development files."""
    return (2 * bool(_SIBLING.search(name)) + name.startswith("lib"), len(name), name)
