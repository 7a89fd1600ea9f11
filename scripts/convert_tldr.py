"""Converts a checkout of tldr-pages to a data directory: `python -m scripts.convert_tldr --source DIR --out DIR`.

Input format (CONTRIBUTING.md and style guide of tldr-pages): `pages/PLATFORM/NAME.md` with a line `# TITLE`, lines
`> DESCRIPTION` (one may be `> See also: `a`, `b`.`, one `> More information: <URL>.`), and for each example a line
`- INTENT:` with a line `` `COMMAND` `` below it. `{{…}}` marks a placeholder, `[c]reate` a letter that names an option.
Translations (`pages.de`) and pages that only point to another (`alias of`) are skipped.

A page becomes a document: its address, title, `See also` names as anchors, and description and commands as text.
Intents describe tasks: a fifth of them become the page's clicked queries, the others become queries. All pages of an
intent are relevant to it; intents on more than three pages or of one word are not queries. Hashes of the intent alone
choose that fifth and the splits train, dev and test (75, 12.5 and 12.5 of 100). So an intent is a clicked query of all
its pages or of none, and no page shows the words of a query that it answers.
"""

import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from glow.commands import reporting
from glow.errors import InputError, RecordError
from scripts.convert_layout import DataFolder, collapsed, share, split_of

SPLITS = (("train", 0.75), ("dev", 0.125), ("test", 0.125))
CLICKED_SHARE = 0.2
MAX_PAGES = 3
MIN_WORDS = 2
_URL = re.compile(r"More information: <([^>]+)>")
_SEE_ALSO = re.compile(r"See also: (.*)")
_NAME = re.compile(r"`([^`]+)`")
_MNEMONIC = re.compile(r"\[(\w+)\]")
_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}")
_ALIAS = re.compile(r"This command is an alias of ")

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Page:
    """One page, with as many `intents` as `commands`."""

    id: str
    title: str
    url: str
    see_also: tuple[str, ...]
    description: str
    intents: tuple[str, ...]
    commands: tuple[str, ...]


def convert(source: Path, out: Path) -> str:
    """Converts the English pages of a checkout.

    Args:
        source: the checkout, which holds `pages/`.
        out: the data directory to create.

    Returns:
        A summary in one line.

    Raises:
        InputError: if the checkout has no pages, or `out` exists.
    """
    paths = sorted((source / "pages").glob("*/*.md"))
    if not paths:
        raise InputError(f"{source} has no pages/PLATFORM/NAME.md; expected a checkout of tldr-pages/tldr")
    with DataFolder(out) as folder:
        pages = []
        for path in paths:
            name = path.relative_to(source).as_posix()
            try:
                text = path.read_text(encoding="utf-8")
                if not _ALIAS.search(text):
                    pages.append(parse_page(f"{path.parent.name}/{path.stem}", text))
            except UnicodeDecodeError as error:
                folder.reject(name, f"byte {error.start}", "not UTF-8")
            except RecordError as error:
                folder.reject(name, "page", str(error), text)
        _write(pages, folder)
    return folder.summary()


def parse_page(identifier: str, text: str) -> Page:
    """Reads a page.

    Raises:
        RecordError: if it has no title, no example, or an example without a command.
    """
    titles: list[str] = []
    quoted: list[str] = []
    intents: list[str] = []
    commands: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("# "):
            titles.append(line[2:].strip())
        elif line.startswith(">"):
            quoted.append(line[1:].strip())
        elif line.startswith("- "):
            intents.append(collapsed(_MNEMONIC.sub(r"\1", line[2:].rstrip(": "))))
        elif line.startswith("`") and line.endswith("`") and len(commands) < len(intents):
            commands.append(collapsed(_PLACEHOLDER.sub(r"\1", line[1:-1])))
        else:
            raise RecordError(
                f"expected `# `, `> `, `- ` or an example's command in backticks, found {line:.60}"
            )
    if len(titles) != 1 or not intents or len(intents) != len(commands):
        counts = f"{len(titles)} titles, {len(intents)} intents and {len(commands)} commands"
        raise RecordError(f"expected one title and as many commands as intents, found {counts}")
    url, see_also, description = _described(quoted)
    return Page(identifier, titles[0], url, see_also, description, tuple(intents), tuple(commands))


def _described(quoted: list[str]) -> tuple[str, tuple[str, ...], str]:
    """The address, the names of `See also`, and the other lines as description."""
    url = ""
    see_also: tuple[str, ...] = ()
    lines = []
    for line in quoted:
        if address := _URL.search(line):
            url = address[1]
        elif names := _SEE_ALSO.match(line):
            see_also = tuple(_NAME.findall(names[1]))
        else:
            lines.append(line.replace("`", ""))
    return url, see_also, collapsed(" ".join(lines))


def _write(pages: list[Page], folder: DataFolder) -> None:
    pages_of: dict[str, list[str]] = defaultdict(list)
    for page in pages:
        for intent in dict.fromkeys(map(str.casefold, page.intents)):
            pages_of[intent].append(page.id)
    for page in pages:
        clicked = []
        for place, intent in enumerate(page.intents):
            identifier = f"tldr-{page.id}-{place}"
            relevant = pages_of[intent.casefold()]
            if share(f"clicked:{intent.casefold()}") < CLICKED_SHARE:
                clicked.append(intent)
            elif len(intent.split()) >= MIN_WORDS and len(relevant) <= MAX_PAGES:
                folder.add_query(identifier, intent)
                split = split_of(intent.casefold(), SPLITS)
                for document in relevant:
                    folder.judge(split, identifier, document, 1)
        text = collapsed(f"{page.description} {' ; '.join(page.commands)}")
        folder.add_document(page.id, text, page.url, page.title, page.see_also, clicked)


@app.command()
def main(
    source: Annotated[Path, typer.Option(help="Checkout of tldr-pages/tldr.")],
    out: Annotated[Path, typer.Option(help="Data folder to make.")],
) -> None:
    """Convert tldr-pages to a data folder."""
    with reporting():
        sys.stdout.write(convert(source, out) + "\n")


if __name__ == "__main__":
    app()
