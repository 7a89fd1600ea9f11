"""Builds test collections from documentation in Debian's packages.

apt-get download $(python -m research.questions packages)
python -m research.questions build --packages P --out OUT
"""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from research.questions.collection import make_documents
from research.questions.faq import faq_questions
from research.questions.halves import questions_of_late_interaction, write_collection
from research.questions.howto import FOLDER, UnknownAnswerError, howto_questions
from research.questions.part import Part
from research.questions.sources import FAQS, HOWTOS, SOURCES, read_parts

EARLIER = {"faq-r": ("r-doc-html",), "faq-debian": ("debian-faq",)}
"""Collections -> packages whose headings `research.late.collections` asked."""
PackagesFolder = Annotated[Path, typer.Option(help="holds a folder for each package, as dpkg -x leaves it")]
app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command()
def packages() -> None:
    """Prints the packages with the versions that the questions were written for, as apt-get takes them."""
    for source in SOURCES.values():
        _say(f"{source.package}={source.version}")


@app.command()
def build(
    packages: PackagesFolder,
    out: Annotated[Path, typer.Option(help="folder to write; a folder of BEIR's layout for each collection")],
    only: Annotated[str, typer.Option(help="names of collections with commas between; default: all")] = "",
) -> None:
    """Writes corpus.jsonl, queries.jsonl, qrels/dev.tsv and qrels/test.tsv of each collection."""
    names = [each.name for each in (*FAQS, *HOWTOS)]
    wanted = only.split(",") if only else names
    if unknown := sorted(set(wanted) - set(names)):
        raise typer.BadParameter(
            f"no collection {', '.join(unknown)}; there are {', '.join(names)}", param_hint="--only"
        )
    for faq in (faq for faq in FAQS if faq.name in wanted):
        documents, questions = faq_questions(
            _parts(faq.sources, packages), faq.pages, own_answers=faq.own_answers, whole_pages=faq.whole_pages
        )
        earlier = questions_of_late_interaction(packages / each for each in EARLIER.get(faq.name, ()))
        _report(faq.name, write_collection(out / faq.name, documents, questions, earlier))
    for howto in (howto for howto in HOWTOS if howto.name in wanted):
        documents = make_documents(_without_faq(_parts(howto.sources, packages), howto.sources))
        try:
            questions = howto_questions(FOLDER / f"{howto.name.removeprefix('howto-')}.jsonl", documents)
        except UnknownAnswerError as error:
            _say(str(error))
            raise typer.Exit(1) from error
        _report(howto.name, write_collection(out / howto.name, documents, questions))


def _parts(names: tuple[str, ...], packages: Path) -> list[Part]:
    return [part for name in names for part in read_parts(SOURCES[name], packages)]


def _without_faq(parts: list[Part], sources: tuple[str, ...]) -> list[Part]:
    """The parts without the pages of a FAQ of the same documentation: they would answer in its place."""
    out = [faq.pages for faq in FAQS if faq.sources == sources]
    return [part for part in parts if not any(re.search(pages, part.page) for pages in out)]


def _report(name: str, counts: dict[str, int]) -> None:
    _say(f"{name}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    app()
