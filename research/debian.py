"""Writes a data directory of general English texts with training pairs, from the packages of a Debian system.

python -m research debian --out DIR
"""

import gzip
import lzma
import os
import random
import re
import subprocess
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from glow.commands import package_app, say
from research.folders import given_folder, names_among, write_folder, write_lines
from research.prose import (
    Pair,
    Section,
    collapsed,
    cut,
    first_sentence,
    html_sections,
    make_pair,
    pod_sections,
    xml_sections,
)

# A query with more relevant documents is too general to be a question ("Installation").
MAX_DOCUMENTS_OF_A_QUERY = 5


@dataclass(frozen=True)
class Source:
    """One kind of text."""

    prefix: str  # prefix of the document ids, before a colon or a hyphen
    install: str  # the command that installs this source
    licence: str  # note for a model card


LISTS = Path("var/lib/apt/lists")
_HELPER = Path("/usr/lib/apt/apt-helper")
_SIBLING = re.compile(r"-(dev|dbg|dbgsym|doc|data|common|bin|utils|tools|examples|headers)$")
_KEY_PARAGRAPH_WORDS = 12

Stanza = dict[str, str]


def package_pairs(root: Path) -> Iterator[Pair]:
    """Yields one pair per description: of packages with the same text, the program or the shortest name stays."""
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
    """Reads one of apt's lists, compressed or not; lz4 needs apt's own helper."""
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


WORDNET = Path("usr/share/wordnet")
DICTD = Path("usr/share/dictd")
_DIGITS = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
_MIN_REST_WORDS = 25
_MIN_GLOSS_WORDS = 8


def wordnet_pairs(root: Path) -> Iterator[Pair]:
    """Yields a pair per noun and verb of WordNet whose definition has at least eight words."""
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
    """Yields the pairs of one dictionary."""
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


SHARE = Path("usr/share")
MAX_SECTION_WORDS = 150
MIN_SECTION_WORDS = 25
MIN_SENTENCE_WORDS = 4
MAX_TITLE_CHARACTERS = 80
MAX_HEADINGS = 5
_READERS = {
    ".html": html_sections, ".htm": html_sections, ".pod": pod_sections,
    ".page": xml_sections, ".docbook": xml_sections, ".xml": xml_sections,
}  # fmt: skip
# Other languages, indices, extra files of packages, and change logs.
_OTHER_FOLDERS = re.compile(
    r"^(?!en)[a-z]{2}([-_@][A-Za-z]+)?$|^(locale|man|i18n|_static|_sources|demos|examples?|tests?|icons|mime|themes|"
    r"node_modules|nodejs|javascript|python3?|gir-1.0|glib-2.0|gcc|fontconfig|dbus-1|polkit-1|xml|api|javadoc)$"
)
_OTHER_FILES = re.compile(
    r"(?i)^(genindex|py-modindex|search|copyright|changelog|news|releasenotes|release-|fdl|gpl|legal|license|classindex)"
)
# These headings alone do not describe the section, so its first sentence is the query.
_GENERIC = frozenset(
    "introduction overview description summary notes note background preface abstract about remarks general purpose "
    "concept concepts details comments definition usage basics foreword".split()
)
# Below these are lists, code or names.
_REFUSED = re.compile(
    r"(?i)^(see also|examples?|references|bibliography|authors?|copyright|license|licen[cs]ing|keywords|synopsis|"
    r"parameters|arguments|calling sequences?|history|contents|table of contents|index|name|options|bugs|search|"
    r"(more )?related (topics|links|information)|returns?|activat(e|ing) (the )?\w+|legal notice|credits|acknowledge?ments|warning|tip|"
    r"important|caution|syntax|flags|changelog|used functions|navigation|what.s new.*|return value|source code|"
    r"how to call|exercises?|module contents|class inheritance diagram)$"
)
_BOILERPLATE = re.compile(
    r"^(Source code: \S+ |To access this command\.\.\. )|This help page needs further work.*?Help contents\. ?"
)
_NUMBER = re.compile(
    r"^((chapter|section|appendix|part)\s+)?([A-Z0-9]{1,2}(\.\d+)*[.:)]?\s+(?=\S)|[A-Z]?\d+(\.\d+)*\.?\s+)",
    re.I,
)


def book_pairs(root: Path, whole: bool = False) -> Iterator[Pair]:
    """Yields the sections of every HTML page, DocBook or Mallard file and POD file below `usr/share`.

    A heading that many sections have ("Compatibility") is replaced by the section's first sentence.
    """
    share = root / SHARE
    files = [
        (path.relative_to(share), file_sections(_file_text(path), _kind(path))) for path in _files(share)
    ]
    counts = Counter(_heading(section.heading).lower() for _, own in files for section in own)
    common = frozenset(heading for heading, count in counts.items() if count > MAX_HEADINGS)
    seen: set[str] = set()
    for path, own in files:
        for number, section in enumerate(own):
            pair = section_pair(section, book_name(path), f"book:{path}#{number}", common)
            rest = later_passages(section, pair) if pair and whole else ()
            for each in (pair, *rest):
                if each and each.text not in seen:
                    seen.add(each.text)
                    yield each


def file_sections(source: str, kind: str) -> list[Section]:
    """The sections of one file that have enough words."""
    return [section for section in _READERS[kind](source) if len(section.text.split()) >= MIN_SECTION_WORDS]


def section_pair(
    section: Section, book: str, identifier: str, common: frozenset[str] = frozenset()
) -> Pair | None:
    """The pair of one section, or None if heading or text are not usable."""
    heading = _heading(section.heading)
    above = [_heading(parent) for parent in section.parents]
    titles = [
        title for title in above if _says_something(title, common) and heading.lower() not in title.lower()
    ]
    text = cut(_BOILERPLATE.sub("", collapsed(section.text)), MAX_SECTION_WORDS)
    if not heading or _REFUSED.match(heading):
        return None
    if not _says_something(heading, common):
        heading, text = first_sentence(text)
        if len(heading.split()) < MIN_SENTENCE_WORDS:
            return None
    return make_pair(identifier, heading, titles[-1] if titles else book, text, min_words=MIN_SECTION_WORDS)


def later_passages(section: Section, first: Pair) -> Iterator[Pair]:
    """Pairs from a section's text after its first words, which `first` has: a passage's first sentence is the query."""
    text = collapsed(section.text)
    start = len(cut(text, MAX_SECTION_WORDS))
    number = 0
    while len(text) - start > MIN_SECTION_WORDS:
        passage = cut(text[start:].strip(), MAX_SECTION_WORDS)
        start = text.index(passage, start) + len(passage)
        number += 1
        query, rest = first_sentence(passage)
        title = f"{first.title}: {first.query}" if len(first.query) < MAX_TITLE_CHARACTERS else first.title
        pair = make_pair(f"{first.id}.{number}", query, title, rest, min_words=MIN_SECTION_WORDS)
        if pair and len(query.split()) >= MIN_SENTENCE_WORDS:
            yield pair


def book_name(path: Path) -> str:
    """Name of the book a file belongs to, from its path below `usr/share`."""
    parts = [part for part in path.parts[:-1] if part not in ("doc", "help", "C", "html", "share")]
    name = parts[0] if parts else path.stem
    return re.sub(r"-docs?\b|-common\b|[-\d.]+$", "", name).replace("-", " ")


def _says_something(heading: str, common: frozenset[str]) -> bool:
    lower = heading.lower()
    return bool(lower) and lower not in _GENERIC and lower not in common and not _REFUSED.match(heading)


def _heading(text: str) -> str:
    text = collapsed(text).strip("¶§# ")
    return _NUMBER.sub("", text).strip(" .:\u00b6") or text


def _files(share: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(share):
        folders[:] = sorted(name for name in folders if not _OTHER_FOLDERS.match(name))
        for name in sorted(names):
            path = Path(folder, name)
            kind = _kind(path)
            is_help = kind != ".xml" or "/help/" in folder
            if kind in _READERS and is_help and not _OTHER_FILES.match(name) and path.is_file():
                yield path


def _kind(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def _file_text(path: Path) -> str:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", errors="replace")


READERS: Mapping[str, Callable[[Path], Iterable[Pair]]] = {
    "packages": package_pairs,
    "books": book_pairs,
    "wordnet": wordnet_pairs,
    "dictionaries": dictd_pairs,
}
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SOURCES = {name: Source(**values) for name, values in _TABLES.items()}


def main(
    out: Annotated[Path, typer.Option(help="folder to write; a corpus.jsonl in it is replaced")],
    sources: Annotated[str, names_among(list(SOURCES), "names with commas between")] = ",".join(SOURCES),
    whole_sections: Annotated[
        bool, typer.Option("--whole-sections", help="books: every passage of a section, not its first alone")
    ] = False,
    root: Annotated[
        list[Path] | None, given_folder("folder that packages are unpacked in, repeatable; default: /")
    ] = None,
) -> None:
    """Reads the available sources, prints the missing ones, and writes one data directory."""
    chosen: list[Pair] = []
    for name in (name for name in SOURCES if name in sources.split(",")):
        pairs = _read(name, root or [Path("/")], whole_sections)
        if not pairs:
            say(f"{name}: not on this machine; to have it: {SOURCES[name].install}")
            continue
        say(f"{name}: {len(pairs):,} documents")
        chosen += pairs
    if not chosen:
        say("Nothing was written: none of the sources is on this machine.")
        raise typer.Exit(1)
    chosen.sort(key=lambda pair: pair.id)
    random.Random(0).shuffle(chosen)  # noqa: S311 - an order, not a secret
    documents, queries = write(chosen, out)
    say(
        f"{out}: {documents:,} documents, {queries:,} queries; queries with more than 5 documents are left out"
    )


def write(pairs: list[Pair], out: Path) -> tuple[int, int]:
    """Writes corpus, queries, relevance judgments and a note on the sources.

    Pairs with the same query, ignoring case and punctuation, share it. A query of more than five documents is
    dropped with its documents.
    """
    by_query: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_query[re.sub(r"\W+", " ", pair.query.lower()).strip()].append(pair)
    shared = {
        f"q-{found[0].id}": found for found in by_query.values() if len(found) <= MAX_DOCUMENTS_OF_A_QUERY
    }
    kept = {pair.id for found in shared.values() for pair in found}
    pairs = [pair for pair in pairs if pair.id in kept]
    judged = {query: [pair.id for pair in found] for query, found in shared.items()}
    write_folder(
        out,
        (
            {"_id": each.id, "url": each.url, "title": each.title, "text": each.text, "source": each.source}
            for each in pairs
        ),
        ({"_id": query, "text": found[0].query} for query, found in shared.items()),
        {"train": judged},
    )
    write_lines(out / "README.md", _notes(pairs))
    return len(pairs), len(shared)


def _notes(pairs: list[Pair]) -> list[str]:
    """Lines of the README: contents and licenses."""
    counts = Counter(pair.source.partition("-")[0] for pair in pairs)
    lines = ["# General texts from Debian", ""]
    lines += [
        f"- {name} (`{each.prefix}`): {counts[each.prefix]:,} documents" for name, each in SOURCES.items()
    ]
    licences = [f"- {name}: {each.licence}" for name, each in SOURCES.items() if counts[each.prefix]]
    return [*lines, "", "Licences:", "", *licences]


def _read(name: str, roots: list[Path], whole_sections: bool) -> list[Pair]:
    """The pairs of all roots with distinct ids and texts."""
    found: dict[str, Pair] = {}
    texts: set[str] = set()
    for root in roots:
        whole = whole_sections and name == "books"
        for pair in book_pairs(root, whole=True) if whole else READERS[name](root):
            if pair.id not in found and pair.text not in texts:
                found[pair.id] = pair
                texts.add(pair.text)
    return list(found.values())


app = package_app({"debian": main}, "Training texts from packages of Debian.")

if __name__ == "__main__":
    app()
