"""Writes docs/reference and the help of every command."""

from pathlib import Path

from glow.cli import HELP_FILE
from scripts.reference.files import files_page
from scripts.reference.options import commands_page, help_texts, settings_page
from scripts.reference.service import errors_page, http_page, metrics_page

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


if __name__ == "__main__":
    for path, make in PAGES.items():
        path.write_text(make(), encoding="utf-8")
