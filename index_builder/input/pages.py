"""Reads Markdown, HTML, plain text and mail: title, headings as anchors, text, and what they say about themselves."""

import codecs
import email.policy
import email.utils
import functools
import html
import importlib
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from glow.errors import RecordError
from glow_index_builder.input.tables import json_value

Values = dict[str, Any]
"""Fields and metadata of a document, as JSON values; empty ones are left out later."""
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_WESTERN = "windows-1252"
_LATIN = ("iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii")
"""Browsers read these as Windows-1252, too: https://encoding.spec.whatwg.org."""
FOREIGN_SHARE = 0.25
"""Bytes beyond ASCII from which on a text is not Western, so that its encoding is guessed."""
SAMPLE_BYTES = 16_384
CONTROL_SHARE = 0.01
"""Text has fewer control characters; random bytes have a tenth."""
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_CHARSET = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*["']?([\w.:-]{1,40})""", re.I
)
# These and `_TAG` take time in proportion to the page, for any content.
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
MATTER_CHARACTERS = 65_536
"""Longest front matter; a longer one is text."""
_PAIR = re.compile(r"^([A-Za-z][\w-]{0,40}):[ \t]*(\S.*)$", re.MULTILINE)
_TAG = re.compile(r"<[^<>]*>")
_NO_DATE = {"extensive_search": False}
"""A search for a date in the text would take half of the time."""
_BREAK = {"softbreak": " ", "hardbreak": "\n"}


def decoded(
    data: bytes,
    charset: str = "",  # what the page declares
) -> str:
    """Decodes text: by its mark, by what it declares, as UTF-8, or else by a guess. Refuses what is not text."""
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    charset = (
        _WESTERN if charset.lower() in _LATIN else "" if charset.lower().startswith("utf-16") else charset
    )
    for encoding in (_MARKS.get(mark, charset), "utf-8"):
        with suppress(LookupError, ValueError):
            text = data[len(mark) :].decode(encoding)
            break
    else:
        text = data.decode(_guess(data), errors="replace")
    start = text[:SAMPLE_BYTES]
    if len(_CONTROL.findall(start)) > CONTROL_SHARE * len(start):
        raise RecordError("not text: it has control characters, as programs and pictures have")
    return text.replace("\r\n", "\n")


def _guess(data: bytes) -> str:
    """The encoding of bytes that are not quite UTF-8."""
    data = data[:SAMPLE_BYTES]
    foreign = len(data.translate(None, bytes(range(128))))
    text = data.decode(errors="replace")
    wrong = text.count("\ufffd")
    if wrong < len(text) - len(text.encode("ascii", "ignore")) - wrong:
        return "utf-8"
    if foreign > FOREIGN_SHARE * len(data):
        with suppress(ImportError):
            best = importlib.import_module("charset_normalizer").from_bytes(data).best()
            return best.encoding if best else _WESTERN
    return _WESTERN


def markdown_page(path: Path) -> Values:
    """Reads Markdown whole. Its front matter becomes fields and metadata."""
    matter, text = _front_matter(decoded(path.read_bytes()))
    return matter | markdown_values(text, title=str(matter.get("title") or ""))


def _front_matter(text: str) -> tuple[Values, str]:
    """The values of a page's front matter, and the text below it. Damaged YAML is read as pairs of key and text."""
    match = _FRONT_MATTER.match(text[: MATTER_CHARACTERS + 16])
    if match is None:
        return {}, text
    yaml = importlib.import_module("yaml")
    try:
        values = yaml.load(match[1], getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError):  # ValueError: of a date such as 2024-02-31
        values = dict(_PAIR.findall(match[1]))
    if not isinstance(values, dict):
        return {}, text  # a rule above and below of what is text
    return json_value(values), text[match.end() :]


def markdown_values(text: str, title: str = "") -> Values:
    """Title, headings and paragraphs of Markdown."""
    headings: list[str] = []
    paragraphs: list[str] = []
    is_heading = False
    for token in _markdown_parser().parse(text):
        if token.type in ("heading_open", "heading_close"):
            is_heading = token.type == "heading_open"
        elif token.type == "inline":
            words = _inline(token.children or [])
            (headings if is_heading else paragraphs).append(words)
        elif token.type in ("fence", "code_block"):
            paragraphs.append(token.content.strip())
        elif token.type == "html_block":
            paragraphs.append(html.unescape(_TAG.sub(" ", token.content)).strip())
    return page_values(title, headings, paragraphs)


@functools.cache
def _markdown_parser() -> Any:
    """Cached, because making one takes as long as parsing a small page."""
    reader = importlib.import_module("markdown_it")
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


def page_values(title: str, headings: Iterable[str], paragraphs: Iterable[str]) -> Values:
    """The fields of a page; without a title of its own, its first heading is its title."""
    anchors = [" ".join(each.split()) for each in headings]
    title = title or next(filter(None, anchors), "")
    return {
        "title": title,
        "anchor": [each for each in dict.fromkeys(anchors) if each and each != title],
        "text": "\n".join(each for each in paragraphs if each.strip()),
    }


def titled(values: Values, title: str) -> Values:
    """Gives a title of its own to a document; the heading that was its title becomes an anchor."""
    first = str(values.get("title") or "")
    if not title or title == first:
        return values
    return values | {"title": title, "anchor": [each for each in (first, *values.get("anchor", ())) if each]}


def html_page(path: Path) -> Values:
    """Reads HTML. trafilatura extracts the main text, without menus and footers, and what the head says."""
    return _html(path.read_bytes())


def _html(data: bytes, charset: str = "") -> Values:
    reader = importlib.import_module("trafilatura")
    declared = _CHARSET.search(data[:4096])
    text = decoded(data, declared[1].decode() if declared else charset)
    tree = reader.load_html(text) if text.strip() else None
    if tree is None:
        return {}
    named = {(each.get("name") or "").lower(): each.get("content") or "" for each in tree.iter("meta")}
    links = ((each.get("rel") or "", each.get("href") or "") for each in tree.iter("link"))
    canonical = next((link for rel, link in links if rel.lower() == "canonical"), "")
    lang = tree.get("lang") or tree.get("{http://www.w3.org/XML/1998/namespace}lang")
    page = reader.bare_extraction(
        tree, include_comments=False, favor_recall=True, with_metadata=True, date_extraction_params=_NO_DATE
    )
    if page is None:
        return {}
    heads = [] if page.body is None else page.body.iter("head")
    headings = [" ".join("".join(each.itertext()).split()) for each in heads]
    is_heading = set(headings).__contains__
    lines = [line for line in (page.text or "").splitlines() if not is_heading(line.strip())]
    return {
        "url": canonical,
        "author": page.author,
        "date": page.date,
        "description": page.description,
        "keywords": [each.strip() for each in named.get("keywords", "").split(",") if each.strip()],
        "lang": lang,
    } | page_values(page.title or "", headings, lines)


def text_page(path: Path) -> Values:
    """Reads plain text."""
    return {"text": decoded(path.read_bytes())}


def mail_page(path: Path) -> Values:
    """Reads a mail: its text, or else its HTML; attachments are left out."""
    mail = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    part = mail.get_body(preferencelist=("plain", "html"))
    values: Values = {}
    if part is not None:
        content = cast(bytes, part.get_payload(decode=True) or b"")
        charset = part.get_content_charset("")
        is_html = part.get_content_subtype() == "html"
        values = _html(content, charset) if is_html else {"text": decoded(content, charset)}
    with suppress(TypeError, ValueError):
        values["date"] = email.utils.parsedate_to_datetime(str(mail["date"])).isoformat()
    values = titled(values, str(mail["subject"] or ""))
    return values | {"author": str(mail["from"] or ""), "to": str(mail["to"] or "")}
