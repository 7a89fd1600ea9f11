"""The pages of docs/reference are what the code says, and the code says something of every row."""

import re
from pathlib import Path

import pytest

from scripts.reference.__main__ import PAGES, ROOT

MADE = {path.name: make for path, make in PAGES.items()}
CELL = re.compile(r"(?<!\\)\|")
SILENT = {"commands.json"}
"""Not a table of meanings."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_code_says(path: Path) -> None:
    assert path.is_file() and path.read_text(encoding="utf-8") == PAGES[path](), (
        f"{path.relative_to(ROOT)} differs from the code; run: python -m scripts.reference"
    )


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in CELL.split(line)[1:-1]]


@pytest.mark.parametrize("name", sorted(MADE.keys() - SILENT))
def test_every_row_has_a_meaning(name: str) -> None:
    silent, rows, column = [], 0, -1
    for line in MADE[name]().splitlines():
        if not line.startswith("|"):
            column = -1
        elif "meaning" in cells(line):
            column = cells(line).index("meaning")
        elif column >= 0 and "---" not in line:
            rows += 1
            silent += [] if len(cells(line)[column]) > 3 else [line]
    assert rows > 10
    assert not silent, "\n" + "\n".join(silent)


def test_every_route_has_a_summary() -> None:
    routes = re.findall(r"^## (?:GET|POST|DELETE) (\S+)\n\n(.*)$", MADE["http.md"](), re.MULTILINE)
    assert len(routes) > 10
    assert not [path for path, summary in routes if len(summary) < 10]


def test_every_error_has_a_status_and_an_exit_code() -> None:
    rows = [cells(line) for line in MADE["errors.md"]().partition("## Client")[0].splitlines() if "`" in line]
    codes = [row for row in rows if len(row) == 5]
    assert len(codes) > 20
    assert not [
        row for row in codes if not (re.fullmatch("[45]..", row[1]) and re.fullmatch("[1-6]", row[4]))
    ]
