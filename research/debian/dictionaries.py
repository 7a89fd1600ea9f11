"""Pairs from installed dictionaries: WordNet, and those in dictd's format.

In WordNet, a word is the query for its definition. In an encyclopedic dictionary the first sentence of an entry is the
query for the rest, or the word itself if the entry is short.
"""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from research.debian.pair import Pair, collapsed, first_sentence, make_pair

WORDNET = Path("usr/share/wordnet")
DICTD = Path("usr/share/dictd")
_DIGITS = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
_MIN_REST_WORDS = 25
_MIN_GLOSS_WORDS = 8


def wordnet_pairs(root: Path) -> Iterator[Pair]:
    """Yields a pair per noun and verb of WordNet whose definition has at least eight words.

    Args:
        root: directory that holds `usr/share/wordnet` with `data.noun` and `data.verb`.
    """
    for part in ("noun", "verb"):
        path = root / WORDNET / f"data.{part}"
        if path.exists():
            yield from synset_pairs(path.read_text(encoding="utf-8", errors="replace"), part)


def synset_pairs(source: str, part: str) -> Iterator[Pair]:
    """Yields the pairs of one data file of WordNet (format: man 5 wndb).

    The words are the query, their hypernym is the title, definition and examples are the text.
    """
    lines = [line for line in source.splitlines() if line[:1].isdigit() and " | " in line]
    words = {line[:8]: _words(line) for line in lines}
    for line in lines:
        key, gloss = line[:8], line.partition(" | ")[2].strip()
        parent = re.search(r" @ (\d{8}) ", line)
        title = words.get(parent[1], [""])[0] if parent else ""
        query = ", ".join(words[key])
        if pair := make_pair(f"wn:{part}-{key}", query, title, gloss, min_words=_MIN_GLOSS_WORDS):
            yield pair


def dictd_pairs(root: Path) -> Iterator[Pair]:
    """Yields the pairs of every dictionary in `usr/share/dictd` except WordNet, which has its own source."""
    for index in sorted((root / DICTD).glob("*.index")):
        path = index.with_suffix(".dict.dz")
        if path.exists() and index.stem != "wn":
            data = gzip.decompress(path.read_bytes())
            yield from entry_pairs(index.read_text(encoding="utf-8", errors="replace"), data, index.stem)


def entry_pairs(index: str, data: bytes, name: str) -> Iterator[Pair]:
    """Yields the pairs of one dictionary.

    Args:
        index: tab-separated lines of headword, offset and size, with numbers in dictd's base 64.
        data: the uncompressed dictionary.
        name: its name, for the ids.
    """
    seen: set[int] = set()
    for line in index.splitlines():
        headword, _, place = line.partition("\t")
        offset, size = (_number(digits) for digits in place.split("\t")[:2])
        if headword.startswith("00") or offset in seen:
            continue
        seen.add(offset)
        entry = data[offset : offset + size].decode("utf-8", errors="replace")
        if pair := _entry_pair(headword, entry, f"dict-{name}:{offset}"):
            yield pair


def _entry_pair(headword: str, entry: str, identifier: str) -> Pair | None:
    """Makes a pair of an entry, whose first line is the headword; removes marks around cross references."""
    lines = entry.strip().splitlines()
    is_line = bool(lines) and len(lines) > 1 and lines[0].strip().lower() == headword.lower()
    body = re.sub(r"[{}]|\[[^]]{0,80}\]|<[^>]{0,60}>", "", "\n".join(lines[1:] if is_line else lines))
    sentence, rest = first_sentence(collapsed(body))
    if len(rest.split()) >= _MIN_REST_WORDS and len(sentence.split()) >= 4:
        return make_pair(identifier, sentence, headword, rest)
    return make_pair(identifier, headword, "", body)


def _words(line: str) -> list[str]:
    fields = line.split()
    count = int(fields[3], 16)
    return [re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in fields[4 : 4 + 2 * count : 2]]


def _number(digits: str) -> int:
    value = 0
    for digit in digits:
        value = 64 * value + _DIGITS[digit]
    return value
