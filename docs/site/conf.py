"""The documentation as a site: every page as it stands in the repository, and every link between them checked.

python -m sphinx -b html -W --keep-going -c docs/site . build/site
"""

import os
import re
from typing import Any

project = "GLOW"
author = "the GLOW authors"
html_title = "GLOW"
html_theme = "furo"
extensions = ["myst_parser"]
root_doc = "docs/site/index"
include_patterns = ["*.md", "docs/**.md", "models/README.md"]
html_extra_path = ["start"]  # index.html at the top, which leads to the first page
exclude_patterns = ["build", "docs/examples", ".venv", "**/node_modules"]
myst_heading_anchors = 4
myst_enable_extensions = ["tasklist"]
html_show_sourcelink = False
# Pages are plain Markdown for the repository's own viewers: tables of contents stand in docs/site/index.md alone.
suppress_warnings = ["myst.header", "toc.not_included", "misc.highlighting_failure"]
SOURCE = os.environ.get("GLOW_SOURCE_URL", "")
"""Where links to what is no page lead, such as https://host/project/blob/main/; without it they are plain text."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def setup(app: Any) -> None:
    """Links to what is no page (code, folders, configurations) lead to the repository, where it has an address."""
    app.connect("source-read", _link_to_source)


def _link_to_source(app: Any, page: str, source: list[str]) -> None:
    folder = (app.srcdir / page).parent

    def replaced(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if match[2].endswith(".md") or not target.exists() or not target.is_relative_to(app.srcdir):
            return match[0]
        return f"[{match[1]}]({SOURCE}{target.relative_to(app.srcdir)})" if SOURCE else match[1]

    source[0] = _LINK.sub(replaced, source[0])
