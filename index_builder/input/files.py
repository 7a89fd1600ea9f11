"""People's files as documents: pages, mails and office files become lines of JSON, one or more a file.

`child` runs this in a process with limits.
"""

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from glow.errors import DependencyError, RecordError
from glow_index_builder.input.formats import one_line
from glow_index_builder.input.office import office_file, pdf_pages
from glow_index_builder.input.pages import Values, html_page, mail_page, markdown_page, text_page


@dataclass(frozen=True, slots=True)
class FileKind:
    """How files of some endings are read."""

    parser: str  # the name of the process that reads them, see `child.PARSERS`
    read: Callable[[Path], Values | Iterator[Values | RecordError]]  # its document, or documents and faults
    packages: tuple[str, ...] = ()
    extra: str = "documents"


_MARKDOWN = FileKind("pages", markdown_page, ("markdown_it", "yaml"), "pages")
_HTML = FileKind("pages", html_page, ("trafilatura",), "pages")
_OFFICE = FileKind("office", office_file, ("markitdown", "markdown_it"))
KINDS: Mapping[str, FileKind] = {
    **dict.fromkeys((".md", ".markdown"), _MARKDOWN),
    **dict.fromkeys((".html", ".htm"), _HTML),
    ".txt": FileKind("pages", text_page),
    ".eml": FileKind("pages", mail_page),
    ".pdf": FileKind("pdf", pdf_pages, ("pypdfium2",)),
    **dict.fromkeys((".docx", ".pptx", ".epub"), _OFFICE),
    ".xlsx": FileKind("office", office_file, ("openpyxl",)),
    ".odt": FileKind("office", office_file),
}
FILES = tuple(KINDS)
"""Endings of files that are documents, in lower case."""
_TEXTS = ("title", "anchor", "clicked_queries")
"""Fields that front matter may set, with text only."""
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:T|$)")
PART_BYTES = 80_000
"""Longest document of a file; the passages of a document hold about as much."""
EMPTY = "no text: the file is empty, or holds only pictures"


def kind_of(name: str) -> FileKind:
    """The kind of a file."""
    return KINDS[Path(name).suffix.lower()]


def require_reader(name: str) -> None:
    """Refuses a file whose package is missing."""
    kind = kind_of(name)
    for package in kind.packages:
        if importlib.util.find_spec(package) is None:
            raise DependencyError(
                f"reading {name} needs the package {package}: install the extra `{kind.extra}` "
                f"(pip install 'glow-retrieval[{kind.extra}]')"
            )


def file_lines(
    request: Mapping[str, Any],  # name, path, size, modified, base_url, max_line_bytes
) -> Iterator[bytes | RecordError]:
    """Yields the documents of a file as JSON objects in UTF-8, and its faults."""
    name, path = request["name"], Path(request["path"])
    if any("\ud800" <= each <= "\udfff" for each in name):
        raise RecordError("the name, which becomes the id, is not UTF-8; rename the file")
    if not request["size"]:
        raise RecordError(EMPTY)
    place = {
        "path": name,
        "folder": name.rpartition("/")[0],
        "modified": request["modified"],
        "url": f"{request['base_url'].rstrip('/')}/{quote(name)}" if request["base_url"] else name,
    }
    count = 0
    for values in _read(name, path):
        if isinstance(values, RecordError):
            yield values
        elif str(values.get("text") or "").strip() or values.get("anchor") or values.get("title"):
            count += 1
            yield from _lines(values, name, place, request["max_line_bytes"])
    if not count:
        raise RecordError(EMPTY)


def _read(name: str, path: Path) -> Iterator[Values | RecordError]:
    try:
        values = kind_of(name).read(path)
        yield from [values] if isinstance(values, dict) else values
    except (RecordError, MemoryError):
        raise
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror or error}") from error
    except Exception as error:  # parsers raise many types; one file must not end a build
        raise RecordError(f"damaged or not {Path(name).suffix}: {one_line(error)}") from error


def _lines(values: Values, name: str, place: Mapping[str, str], most_bytes: int) -> Iterator[bytes]:
    """A document as one line, or as several if it is too long for one."""
    metadata = {key: value for key, value in values.items() if key not in _TEXTS or _is_texts(value)}
    if not _ISO_DATE.match(str(metadata.get("date", ""))):
        metadata.pop("date", None)  # one would turn the dates of all files into texts
    url = str(metadata.pop("url", ""))
    page = f"#page={values['page']}" if "page" in values else ""
    fields = {
        "_id": f"{name}{page}",
        "url": f"{url if url.startswith(('https://', 'http://')) else place['url']}{page}",
        "title": metadata.pop("title", "") or " ".join(re.split(r"[-_\s]+", Path(name).stem)).strip(),
        "anchor": metadata.pop("anchor", ()),
        "text": metadata.pop("text", ""),
    }
    record = {
        key: value
        for key, value in {**metadata, **place, **fields}.items()
        if value not in ("", None, [], ())
    }
    line, most_bytes = _json(record), min(most_bytes, PART_BYTES)
    if len(line) <= most_bytes:
        yield line
        return
    parts = _parts(fields["text"], most_bytes - len(_json({**record, "text": ""})) - 20)
    for number, part in enumerate(parts, start=1):
        yield _json({**record, "_id": f"{fields['_id']}#part={number}", "text": part})


def _is_texts(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _parts(text: str, most_bytes: int) -> Iterator[str]:
    """Cuts a text at the ends of lines, a line that is too long between words, and a word anywhere."""
    part, size = list[str](), 0
    for unit in _units(text, max(most_bytes, 6)):
        took = len(_json(unit)) - 2  # without quotes
        if part and size + took > most_bytes:
            yield "".join(part).strip()
            part, size = [], 0
        part.append(unit)
        size += took
    yield "".join(part).strip()


def _units(text: str, most_bytes: int) -> Iterator[str]:
    longest = most_bytes // 6  # a character takes up to six bytes
    for line in text.splitlines(keepends=True):
        for unit in [line] if len(line) <= longest else re.split(r"(?<=\s)", line):
            yield from (unit[start : start + longest] for start in range(0, len(unit), longest))
