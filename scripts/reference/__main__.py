"""Writes docs/reference; with --check, exits with 1 and names the pages that differ from the code."""

import sys
from pathlib import Path

from scripts.reference.files import files_page
from scripts.reference.http import http_page
from scripts.reference.options import commands_page, settings_page
from scripts.reference.registered import errors_page, metrics_page

__all__ = ["FOLDER", "PAGES", "main"]

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "http.md": http_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "files.md": files_page,
}
"""File name -> what makes its text."""


def main() -> int:
    """Writes or checks the pages, and returns the exit status."""
    if "--check" not in sys.argv:
        for name, make in PAGES.items():
            (FOLDER / name).write_text(make(), encoding="utf-8")
        return 0
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    wrong = [name for name, make in PAGES.items() if found.get(name) != make()]
    for name in wrong:
        sys.stdout.write(f"docs/reference/{name} differs; run: python -m scripts.reference\n")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
