"""Writes a data folder of general English texts with training pairs, from what a Debian system has.

python -m research.debian --out DIR
"""

import json
import random
import re
import sys
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from research.debian.books import book_pairs
from research.debian.dictionaries import dictd_pairs, wordnet_pairs
from research.debian.docstrings import docstring_pairs
from research.debian.manpages import manual_pairs
from research.debian.packages import package_pairs
from research.debian.pair import Pair

# A query that more documents answer than this is no question any more ("Installation").
MAX_DOCUMENTS_OF_A_QUERY = 5


@dataclass(frozen=True)
class Source:
    """One kind of text.

    Attributes:
        name: what `--sources` takes.
        prefix: of the document ids, before a colon or a hyphen.
        read: pairs of a root folder.
        install: what gives a machine this source.
        licence: note for a model card.
    """

    name: str
    prefix: str
    read: Callable[[Path], Iterable[Pair]]
    install: str
    licence: str


def _docstrings(root: Path) -> Iterator[Pair]:
    folders = sorted(root.glob("usr/lib/python3*")) + sorted(root.glob("usr/lib/python3/dist-packages"))
    if root == Path("/"):
        folders.append(Path(sysconfig.get_path("purelib")))
    return docstring_pairs(folders)


SOURCES = (
    Source(
        "packages",
        "deb",
        package_pairs,
        "apt-get -o Acquire::Languages=en update",
        "Package descriptions of Debian main: written by Debian's contributors, each under its package's free licence",
    ),
    Source(
        "manuals",
        "man",
        manual_pairs,
        "apt-get install man-db manpages manpages-dev",
        "Manual pages of Debian main: each under its package's free licence",
    ),
    Source(
        "docstrings",
        "py",
        _docstrings,
        "apt-get install python3",
        "Python's standard library (PSF-2.0) and installed packages: each under its own licence",
    ),
    Source(
        "books",
        "book",
        book_pairs,
        "apt-get install debian-handbook debian-reference-en developers-reference python3-doc perl-doc octave-doc "
        "maxima-doc libreoffice-help-en-us gnome-user-docs gimp-help-en gnumeric-doc gnucash-docs grass-doc "
        "postgresql-doc apophenia-doc geographiclib-doc python-astropy-doc calculix-ccx-doc",
        "Books and manuals of Debian main: each under its package's free licence "
        "(/usr/share/doc/PACKAGE/copyright; mostly GFDL without invariant sections, GPL, BSD, CC BY-SA, PSF)",
    ),
    Source(
        "wordnet",
        "wn",
        wordnet_pairs,
        "apt-get install wordnet-base",
        "WordNet 3.0: the WordNet licence of Princeton University",
    ),
    Source(
        "dictionaries",
        "dict",
        dictd_pairs,
        "apt-get install dict-foldoc dict-jargon dict-gcide",
        "FOLDOC: GFDL 1.1; Jargon File: public domain; GCIDE: GPL-3",
    ),
)


def main(
    out: Annotated[Path, typer.Option(help="folder to write; a corpus.jsonl in it is replaced")],
    limit_per_source: Annotated[int, typer.Option(min=0, help="most documents of a source; 0: all")] = 0,
    seed: Annotated[int, typer.Option(help="for the choice under a limit and for the order")] = 0,
    sources: Annotated[str, typer.Option(help="names with commas between; default: all")] = "",
    whole_sections: Annotated[
        bool, typer.Option("--whole-sections", help="books: every passage of a section, not its first alone")
    ] = False,
    root: Annotated[
        list[Path] | None, typer.Option(help="folder that packages are unpacked in, repeatable; default: /")
    ] = None,
) -> None:
    """Reads the sources that are there, says which are not, and writes one data folder."""
    names = [source.name for source in SOURCES]
    wanted = sources.split(",") if sources else names
    if unknown := sorted(set(wanted) - set(names)):
        raise typer.BadParameter(
            f"no source {', '.join(unknown)}; there are {', '.join(names)}", param_hint="--sources"
        )
    generator = random.Random(seed)  # noqa: S311 - an order, not a secret
    chosen: list[Pair] = []
    for source in (source for source in SOURCES if source.name in wanted):
        pairs = _read(source, root or [Path("/")], whole_sections)
        if not pairs:
            _say(f"{source.name}: not on this machine; to have it: {source.install}")
            continue
        kept = generator.sample(pairs, limit_per_source) if 0 < limit_per_source < len(pairs) else pairs
        _say(f"{source.name}: {len(kept):,} documents")
        chosen += kept
    if not chosen:
        _say("Nothing was written: none of the sources is on this machine.")
        raise typer.Exit(1)
    chosen.sort(key=lambda pair: pair.id)
    generator.shuffle(chosen)
    documents, queries = write(chosen, out)
    _say(
        f"{out}: {documents:,} documents, {queries:,} queries; those of a query with more than 5 are left out"
    )


def write(pairs: list[Pair], out: Path) -> tuple[int, int]:
    """Writes corpus, queries, judgements and a note of the sources.

    Pairs with the same query (but for case and punctuation) share it; a query of more than five documents is
    dropped with its documents.

    Args:
        pairs: with different ids, in the order of writing.
        out: the folder; made where it is missing.

    Returns:
        Number of documents and of queries.
    """
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    by_query: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_query[re.sub(r"\W+", " ", pair.query.lower()).strip()].append(pair)
    shared = [found for found in by_query.values() if len(found) <= MAX_DOCUMENTS_OF_A_QUERY]
    kept = {pair.id for found in shared for pair in found}
    pairs = [pair for pair in pairs if pair.id in kept]
    _write(out / "corpus.jsonl", (_json(_document(pair)) for pair in pairs))
    _write(
        out / "queries.jsonl", (_json({"_id": _query_id(found), "text": found[0].query}) for found in shared)
    )
    rows = (f"{_query_id(found)}\t{pair.id}\t1" for found in shared for pair in found)
    _write(out / "qrels" / "train.tsv", ["query-id\tcorpus-id\tscore", *rows])
    _write(out / "README.md", _notes(pairs))
    return len(pairs), len(shared)


def _notes(pairs: list[Pair]) -> list[str]:
    """Lines of the README: what is in the folder, and under which licences."""
    counts = Counter(pair.source.partition("-")[0] for pair in pairs)
    lines = ["# General texts from Debian", ""]
    lines += [
        f"- {source.name} (`{source.prefix}`): {counts[source.prefix]:,} documents" for source in SOURCES
    ]
    licences = [f"- {source.name}: {source.licence}" for source in SOURCES if counts[source.prefix]]
    return [*lines, "", "Licences:", "", *licences]


def _read(source: Source, roots: list[Path], whole_sections: bool) -> list[Pair]:
    """The pairs of all roots, each id and each text once."""
    found: dict[str, Pair] = {}
    texts: set[str] = set()
    for root in roots:
        whole = whole_sections and source.read is book_pairs
        for pair in book_pairs(root, whole=True) if whole else source.read(root):
            if pair.id not in found and pair.text not in texts:
                found[pair.id] = pair
                texts.add(pair.text)
    return list(found.values())


def _document(pair: Pair) -> dict[str, str]:
    return {"_id": pair.id, "url": pair.url, "title": pair.title, "text": pair.text, "source": pair.source}


def _query_id(pairs: list[Pair]) -> str:
    return f"q-{pairs[0].id}"


def _json(value: dict[str, str]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write(path: Path, lines: Iterable[str]) -> None:
    """Writes beside the file and renames, so that no reader sees half of it."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    part.replace(path)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
