"""Writes a data directory of general English texts with training pairs, from the packages of a Debian system.

python -m research debian --out DIR
"""

import random
import re
import sysconfig
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from glow.commands import package_app, say
from research.debian import readers
from research.debian.text import Pair
from research.folders import given_folder, names_among, write_folder, write_lines

# A query with more relevant documents is too general to be a question ("Installation").
MAX_DOCUMENTS_OF_A_QUERY = 5


@dataclass(frozen=True)
class Source:
    """One kind of text."""

    prefix: str  # prefix of the document ids, before a colon or a hyphen
    install: str  # the command that installs this source
    licence: str  # note for a model card


def _docstrings(root: Path) -> Iterator[Pair]:
    folders = sorted(root.glob("usr/lib/python3*")) + sorted(root.glob("usr/lib/python3/dist-packages"))
    if root == Path("/"):
        folders.append(Path(sysconfig.get_path("purelib")))
    return readers.docstring_pairs(folders)


READERS: Mapping[str, Callable[[Path], Iterable[Pair]]] = {
    "packages": readers.package_pairs,
    "manuals": readers.manual_pairs,
    "docstrings": _docstrings,
    "books": readers.book_pairs,
    "wordnet": readers.wordnet_pairs,
    "dictionaries": readers.dictd_pairs,
}
_TABLES = tomllib.loads((Path(__file__).parent / "sources.toml").read_text(encoding="utf-8"))
SOURCES = {name: Source(**values) for name, values in _TABLES.items()}


def main(
    out: Annotated[Path, typer.Option(help="folder to write; a corpus.jsonl in it is replaced")],
    seed: Annotated[int, typer.Option(help="for the order")] = 0,
    sources: Annotated[str, names_among(list(SOURCES), "names with commas between")] = ",".join(SOURCES),
    whole_sections: Annotated[
        bool, typer.Option("--whole-sections", help="books: every passage of a section, not its first alone")
    ] = False,
    dev: Annotated[int, typer.Option(min=0, help="queries of split dev, which are not in split train")] = 0,
    root: Annotated[
        list[Path] | None, given_folder("folder that packages are unpacked in, repeatable; default: /")
    ] = None,
) -> None:
    """Reads the available sources, prints the missing ones, and writes one data directory."""
    generator = random.Random(seed)  # noqa: S311 - an order, not a secret
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
    generator.shuffle(chosen)
    documents, queries = write(chosen, out, dev)
    say(
        f"{out}: {documents:,} documents, {queries:,} queries; queries with more than 5 documents are left out"
    )


def write(pairs: list[Pair], out: Path, dev: int = 0) -> tuple[int, int]:
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
    judged = [(query, [pair.id for pair in found]) for query, found in shared.items()]
    write_folder(
        out,
        (
            {"_id": each.id, "url": each.url, "title": each.title, "text": each.text, "source": each.source}
            for each in pairs
        ),
        ({"_id": query, "text": found[0].query} for query, found in shared.items()),
        {name: dict(part) for name, part in (("train", judged[dev:]), ("dev", judged[:dev])) if part},
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
        for pair in readers.book_pairs(root, whole=True) if whole else READERS[name](root):
            if pair.id not in found and pair.text not in texts:
                found[pair.id] = pair
                texts.add(pair.text)
    return list(found.values())


app = package_app({"debian": main}, "Training texts from packages of Debian.")

if __name__ == "__main__":
    app()
