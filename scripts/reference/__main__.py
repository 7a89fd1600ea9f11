"""Writes docs/reference and the help of every command; with --check, exits with 1 and names the outdated files."""

import sys
from pathlib import Path

from glow.cli import HELP_FILE
from scripts.reference.files import files_page
from scripts.reference.options import commands_page, help_texts, settings_page
from scripts.reference.service import errors_page, http_page, metrics_page

__all__ = ["FOLDER", "PAGES", "main"]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
PAGES = {
    FOLDER / "commands.md": commands_page,
    FOLDER / "settings.md": settings_page,
    FOLDER / "http.md": http_page,
    FOLDER / "errors.md": errors_page,
    FOLDER / "metrics.md": metrics_page,
    FOLDER / "files.md": files_page,
    ROOT / "glow" / "cli" / HELP_FILE: help_texts,
}
"""File -> function that makes its text."""


def main() -> int:
    """Writes or checks the pages, and returns the exit status."""
    if "--check" not in sys.argv:
        for path, make in PAGES.items():
            path.write_text(make(), encoding="utf-8")
        return 0
    wrong = [path for path, make in PAGES.items() if path.read_text(encoding="utf-8") != make()]
    for path in wrong:
        sys.stdout.write(f"{path.relative_to(ROOT)} differs; run: python -m scripts.reference\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
