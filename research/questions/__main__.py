"""Builds test datasets from documentation in Debian packages.

apt-get download $(python -m research questions packages)
python -m research questions build --packages P --out OUT
python -m research questions pairs --root UNPACKED --out OUT
"""

import re
from pathlib import Path
from typing import Annotated

import typer

from glow.commands import package_app, reporting, say
from research.folders import given_folder, names_among, write_folder
from research.questions.collection import make_documents
from research.questions.faq import faq_questions
from research.questions.halves import questions_of_late_interaction, write_collection
from research.questions.howto import FOLDER, howto_questions
from research.questions.pairs import link_pairs
from research.questions.sources import COLLECTIONS, SOURCES, Collection, read_parts

EARLIER = {"faq-r": ("r-doc-html",), "faq-debian": ("debian-faq",)}
"""Dataset -> packages whose headings the study of late interaction used as queries."""
NAMES = [each.name for each in COLLECTIONS]


def packages_command() -> None:
    """Prints the packages with the versions that the questions were written for, in apt-get's syntax."""
    for source in SOURCES.values():
        say(f"{source.package}={source.version}")


def build_command(
    packages: Annotated[Path, given_folder("holds a folder for each package, as dpkg -x leaves it")],
    out: Annotated[Path, typer.Option(help="folder to write; a folder of BEIR's layout for each collection")],
    only: Annotated[str, names_among(NAMES, "names of collections with commas between")] = ",".join(NAMES),
) -> None:
    """Writes corpus.jsonl, queries.jsonl, qrels/dev.tsv and qrels/test.tsv of each dataset."""
    with reporting():
        for each in (each for each in COLLECTIONS if each.name in only.split(",")):
            counts = _build(each, packages, out / each.name)
            say(f"{each.name}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))


def _build(each: Collection, packages: Path, out: Path) -> dict[str, int]:
    parts = [part for name in each.sources for part in read_parts(SOURCES[name], packages)]
    if each.pages:
        documents, questions = faq_questions(
            parts, each.pages, own_answers=each.own_answers, whole_pages=each.whole_pages
        )
        earlier = questions_of_late_interaction(packages / name for name in EARLIER.get(each.name, ()))
        return write_collection(out, documents, questions, earlier)
    # A FAQ of the same documentation would compete with the relevant sections.
    faqs = [other.pages for other in COLLECTIONS if other.pages and other.sources == each.sources]
    documents = make_documents(
        [part for part in parts if not any(re.search(pages, part.page) for pages in faqs)]
    )
    questions = howto_questions(FOLDER / f"{each.name.removeprefix('howto-')}.jsonl", documents)
    return write_collection(out, documents, questions)


def pairs_command(
    root: Annotated[list[Path], given_folder("holds usr/share/doc; may be given several times")],
    out: Annotated[Path, typer.Option(help="folder to write, in BEIR's layout")],
) -> None:
    """Writes training pairs of link texts and their target sections."""
    with reporting():
        found = [each for folder in root for each in link_pairs(folder)]
        ids = {
            text: f"q{number}"
            for number, text in enumerate(dict.fromkeys(text for each in found for text in each.queries))
        }
        judged: dict[str, list[str]] = {}
        for each in found:
            for text, sections in each.queries.items():
                judged.setdefault(ids[text], []).extend(sections)
        documents = [document for each in found for document in each.documents]
        write_folder(
            out, documents, ({"_id": key, "text": text} for text, key in ids.items()), {"train": judged}
        )
        anchors = sum(len(document["anchor"]) for document in documents)
        say(f"{len(documents):,} documents with {anchors:,} anchors, {len(ids):,} queries")


app = package_app(
    {"packages": packages_command, "build": build_command, "pairs": pairs_command},
    "Test collections and training pairs from documentation.",
)

if __name__ == "__main__":
    app()
