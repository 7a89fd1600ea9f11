"""Reads Markdown and HTML pages as documents with their title, their headings as anchors, and their text."""

import functools
import html
import importlib
import importlib.util
import json
import re
from typing import Any

from glow.errors import DependencyError, RecordError

PAGES = (".md", ".markdown", ".html", ".htm")
PAGE_PACKAGES = {True: "markdown_it", False: "trafilatura"}
"""Whether the page is Markdown -> the package that reads it."""
# These and `_TAG` take time in proportion to the page, for any content.
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r"^title:[ \t]*(\S.*)$", re.MULTILINE)
_TAG = re.compile(r"<[^<>]*>")
_NO_DATE = {"extensive_search": False}
"""The search for a date would take half of the time, and the date is not used."""
_BREAK = {"softbreak": " ", "hardbreak": "\n"}


def require_reader(name: str) -> None:
    """Refuses a page whose package is missing."""
    package = PAGE_PACKAGES[_is_markdown(name)]
    if importlib.util.find_spec(package) is None:
        raise DependencyError(
            f"reading {name} needs the package {package}: install the extra `pages` (pip install 'glow-retrieval[pages]')"
        )


def page_line(
    name: str,
    data: bytes,  # its bytes, UTF-8
) -> bytes:
    """Converts a page to a document, as a line of JSON. Returns a JSON object in UTF-8.

    trafilatura extracts the main text of HTML, without menus and footers; Markdown is taken whole. The title is the
    page's own or else its first heading.
    """
    if not name.isprintable() and any("\ud800" <= each <= "\udfff" for each in name):
        raise RecordError(f"{name} is not a page: its name, which becomes its id, is not UTF-8; rename it")
    reader = importlib.import_module(PAGE_PACKAGES[_is_markdown(name)])
    text = data.decode("utf-8-sig", errors="replace")
    try:
        title, headings, body = _markdown(reader, text) if _is_markdown(name) else _html(reader, text)
    except MemoryError:
        raise
    except Exception as error:  # parsers raise many types; one page must not end a build
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise RecordError(f"{name} is not a page: {reason}") from error
    title = title or (headings[0] if headings else "")
    anchors = [heading for heading in dict.fromkeys(headings) if heading != title]
    values = {"_id": name, "url": name, "title": title, "anchor": anchors, "text": body}
    return json.dumps({key: value for key, value in values.items() if value}, ensure_ascii=False).encode()


def _is_markdown(name: str) -> bool:
    return name.endswith((".md", ".markdown"))


def _markdown(reader: Any, text: str) -> tuple[str, list[str], str]:
    title = ""
    if matter := _FRONT_MATTER.match(text):
        named = _TITLE.search(matter[1])
        title = named[1].strip().strip("'\"") if named else ""
        text = text[matter.end() :]
    headings: list[str] = []
    paragraphs: list[str] = []
    is_heading = False
    for token in _parser_of(reader).parse(text):
        if token.type in ("heading_open", "heading_close"):
            is_heading = token.type == "heading_open"
        elif token.type == "inline":
            words = _inline(token.children or [])
            (headings if is_heading else paragraphs).append(words)
        elif token.type in ("fence", "code_block"):
            paragraphs.append(token.content.strip())
        elif token.type == "html_block":
            paragraphs.append(html.unescape(_TAG.sub(" ", token.content)).strip())
    return title, [each for each in headings if each], "\n".join(each for each in paragraphs if each)


@functools.cache
def _parser_of(reader: Any) -> Any:
    """Cached, because making one takes as long as parsing a small page."""
    return reader.MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _inline(tokens: list[Any]) -> str:
    """The words of a paragraph, without markup, link targets and HTML tags."""
    parts = []
    for token in tokens:
        if token.type == "image":
            parts.append(token.content)
        elif token.type != "html_inline":
            parts.append(_BREAK.get(token.type, token.content))
    return "".join(parts).strip()


def _html(reader: Any, text: str) -> tuple[str, list[str], str]:
    if not text.strip():
        return "", [], ""
    page = reader.bare_extraction(
        text, include_comments=False, favor_recall=True, with_metadata=True, date_extraction_params=_NO_DATE
    )
    if page is None:
        return "", [], ""
    headings = (
        []
        if page.body is None
        else [" ".join("".join(each.itertext()).split()) for each in page.body.iter("head")]
    )
    headings = [each for each in headings if each]
    is_heading = set(headings).__contains__
    lines = [line for line in (page.text or "").splitlines() if line.strip() and not is_heading(line.strip())]
    return page.title or "", headings, "\n".join(lines)
