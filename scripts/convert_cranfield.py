"""Converts the Cranfield collection to a data directory: `python -m scripts.convert_cranfield --source DIR --out DIR`.

Input format (SMART, in cran.tar.gz of Glasgow and Cornell): `cran.all.1400` and `cran.qry` are records that start with
a line `.I NUMBER`. The lines `.T` (title), `.A` (author), `.B` (citation) and `.W` (text) begin sections. A line of
`cranqrel` is `QUERY DOCUMENT GRADE`, with grades 1 (complete answer) to 4 (minimal) or -1 (of no interest). It numbers
queries by their position in `cran.qry`, from 1, not by the number after `.I`.

Grades 1 to 4 become 1 and -1 becomes 0. The only split is `test`, because there are no training data.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from glow.commands import reporting
from glow.errors import InputError
from scripts.convert_layout import DataFolder, collapsed

DOCUMENTS, QUERIES, JUDGEMENTS = "cran.all.1400", "cran.qry", "cranqrel"
_START = re.compile(r"\.I\s+(\d+)\s*")
_SECTION = re.compile(r"\.([A-Z])\s*")
_GRADES = {"-1": 0, "1": 1, "2": 1, "3": 1, "4": 1}

app = typer.Typer(add_completion=False)


def convert(source: Path, out: Path) -> str:
    """Converts the three files of a directory.

    Args:
        source: holds `cran.all.1400`, `cran.qry` and `cranqrel`.
        out: the data directory to create.

    Returns:
        A summary in one line.

    Raises:
        InputError: if a file is missing, or `out` exists.
    """
    missing = [name for name in (DOCUMENTS, QUERIES, JUDGEMENTS) if not (source / name).is_file()]
    if missing:
        raise InputError(f"{source} has no {', '.join(missing)}; expected the unpacked files of cran.tar.gz")
    with DataFolder(out) as folder:
        documents = set()
        for number, sections in _records(source / DOCUMENTS, folder):
            parts = {key: collapsed(text) for key, text in sections.items()}
            anchor = [parts["B"]] if parts.get("B") else []
            title, author = parts.get("T", ""), parts.get("A", "")
            folder.add_document(number, parts.get("W", ""), title=title, anchor=anchor, author=author)
            documents.add(number)
        queries = [collapsed(sections.get("W", "")) for _, sections in _records(source / QUERIES, folder)]
        for place, text in enumerate(queries, start=1):
            folder.add_query(str(place), text)
        _judge(source / JUDGEMENTS, folder, documents, len(queries))
    return folder.summary()


def _records(path: Path, folder: DataFolder) -> Iterator[tuple[str, dict[str, str]]]:
    """Number and sections of each record; repeated sections are joined."""
    number, section = "", ""
    sections: dict[str, str] = {}
    for place, line in enumerate(path.read_text(encoding="latin-1").splitlines(), start=1):
        if start := _START.fullmatch(line):
            if number:
                yield number, sections
            number, section, sections = start[1], "", {}
        elif number and (heading := _SECTION.fullmatch(line)):
            section = heading[1]
        elif section:
            sections[section] = f"{sections.get(section, '')}\n{line}"
        elif line.strip():
            folder.reject(
                path.name, f"line {place}", "expected a line .I NUMBER or a section such as .T", line
            )
    if number:
        yield number, sections


def _judge(path: Path, folder: DataFolder, documents: set[str], queries: int) -> None:
    for place, line in enumerate(path.read_text(encoding="latin-1").splitlines(), start=1):
        row = line.split()
        if len(row) != 3 or row[2] not in _GRADES:
            reason = "expected a query, a document and a grade of -1 or 1 to 4"
        elif not (row[0].isdigit() and 1 <= int(row[0]) <= queries):
            reason = f"expected a query from 1 to {queries}"
        elif row[1] not in documents:
            reason = "no document has this number"
        else:
            folder.judge("test", str(int(row[0])), row[1], _GRADES[row[2]])
            continue
        if row:
            folder.reject(path.name, f"line {place}", reason, line)


@app.command()
def main(
    source: Annotated[Path, typer.Option(help="Folder of cran.all.1400, cran.qry and cranqrel.")],
    out: Annotated[Path, typer.Option(help="Data folder to make.")],
) -> None:
    """Convert the Cranfield collection to a data folder."""
    with reporting():
        sys.stdout.write(convert(source, out) + "\n")


if __name__ == "__main__":
    app()
