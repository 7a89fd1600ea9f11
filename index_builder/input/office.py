"""Reads PDF page by page, and Word, PowerPoint, Excel, EPUB and OpenDocument files whole, with their own metadata.

markitdown converts Word, PowerPoint and EPUB to Markdown. PDF and Excel are read by packages that it installs:
pypdfium2 reads 870 pages a second and pdfminer 28; openpyxl takes a twelfth of the time of markitdown's tables.
"""

import importlib
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from glow.errors import RecordError
from glow_index_builder.input.pages import Values, markdown_values, page_values, titled

NO_TEXT = "no text: scanned pages need OCR, for example ocrmypdf"
_UNTITLED = ("", "untitled", "(anonymous)")
_PDF_DATE = re.compile(r"D:(\d{4})(\d\d)(\d\d)")
_BROKEN_WORD = re.compile("[\x02\ufffe](?:\r?\n)?")
"""What PDFium puts for a hyphen at the end of a line."""
_OLD_OR_ENCRYPTED = b"\xd0\xcf\x11\xe0"
MAX_UNPACKED_BYTES = 1 << 29
"""Most bytes that a file of this kind may unpack to; a picture counts as well."""
_CONVERTERS = {".docx": "DocxConverter", ".pptx": "PptxConverter", ".epub": "EpubConverter"}
_HEADER = re.compile(r"\A(?:\*\*[A-Z][a-z]+:\*\* .*\n)+")
"""What markitdown writes above the text of a book."""
_FACTS = {
    "title": "title",
    "creator": "author",
    "date": "date",
    "created": "date",
    "language": "lang",
    "description": "description",
}
"""Names of Dublin Core -> metadata."""
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"


def pdf_pages(path: Path) -> Iterator[Values | RecordError]:
    """Reads the pages that have text; a damaged one is a fault of its own."""
    package = importlib.import_module("pypdfium2")
    try:
        document = package.PdfDocument(path)
    except package.PdfiumError as error:
        if "password" in str(error).lower():
            raise RecordError("encrypted; remove its password, for example with qpdf --decrypt") from error
        raise RecordError(f"damaged or not a PDF: {error}") from error
    own = document.get_metadata_dict()
    title, headings, count = own["Title"].strip(), _outline(document), 0
    facts = {"title": "" if title.lower() in _UNTITLED else title, "author": own["Author"]}
    if date := _PDF_DATE.match(own["CreationDate"]):
        facts["date"] = "-".join(date.groups())
    for place in range(len(document)):
        try:
            page = document[place]
            text = _BROKEN_WORD.sub("", page.get_textpage().get_text_bounded()).replace("\r\n", "\n")
            page.close()
        except package.PdfiumError as error:
            yield RecordError(f"damaged on page {place + 1}: {error}")
            continue
        if text.strip():
            count += 1
            yield {**facts, "anchor": headings[place], "text": text.strip(), "page": place + 1}
    if not count:
        raise RecordError(NO_TEXT)


def _outline(document: Any) -> dict[int, list[str]]:
    """The bookmarks of each page."""
    headings: dict[int, list[str]] = defaultdict(list)
    with suppress(Exception):  # of a damaged outline, of many kinds
        for item in document.get_toc():
            target = item.get_dest()
            if target is not None and (title := item.get_title().strip()):
                headings[target.get_index()].append(title)
    return headings


def office_file(path: Path) -> Values:
    """Reads a file that is a zip archive of XML."""
    with path.open("rb") as file:
        if file.read(4) == _OLD_OR_ENCRYPTED:
            raise RecordError("encrypted or of an old version; save it again without a password")
    ending = path.suffix.lower()
    with zipfile.ZipFile(path) as archive:
        size = sum(each.file_size for each in archive.infolist())
        if size > MAX_UNPACKED_BYTES:
            raise RecordError(f"unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
        facts = _facts(archive, ending)
        if ending == ".odt":
            values = _open_document(archive)
    if ending == ".xlsx":
        values = _sheets(path)
    elif ending in _CONVERTERS:
        markitdown = importlib.import_module("markitdown")
        converter = getattr(importlib.import_module("markitdown.converters"), _CONVERTERS[ending])()
        with path.open("rb") as file:
            result = converter.convert(file, markitdown.StreamInfo(extension=ending))
        values = markdown_values(_HEADER.sub("", result.markdown))
    if not (values["title"] or values["anchor"] or values["text"].strip()):
        raise RecordError("no text")
    return titled(values, facts.pop("title", "")) | facts


def _facts(archive: zipfile.ZipFile, ending: str) -> Values:
    """Title, author, date, language and description of a file."""
    members = archive.namelist()
    known = {".odt": "meta.xml", ".epub": next((each for each in members if each.endswith(".opf")), "")}
    member, facts = known.get(ending, "docProps/core.xml"), dict[str, str]()
    if member in members:
        for element in _xml(archive, member).iter():
            fact = _FACTS.get(element.tag.rpartition("}")[2])
            if fact and (text := " ".join((element.text or "").split())):
                facts.setdefault(fact, text)
    return facts


def _xml(archive: zipfile.ZipFile, member: str) -> ElementTree.Element:
    """The tree of a member. One with entities is refused, because they may stand for any amount of text."""
    data = archive.read(member)
    if b"<!ENTITY" in data:
        raise RecordError(f"declares entities in {member}, which are not read")
    return ElementTree.fromstring(data)  # noqa: S314 - without entities, and in a process with limits


def _sheets(path: Path) -> Values:
    """Each row of each sheet is a line; the names of the sheets are headings."""
    openpyxl = importlib.import_module("openpyxl")
    workbook = openpyxl.load_workbook(path, read_only=True, data_only=True)
    lines, names = [], []
    for sheet in workbook.worksheets:
        names.append(sheet.title)
        sheet.reset_dimensions()  # a wrong size would be read as a million empty rows
        for row in sheet.iter_rows(values_only=True):
            lines.append(" | ".join(str(cell).strip() for cell in row if cell is not None))
    return {**page_values("", [], lines), "anchor": names}


def _open_document(archive: zipfile.ZipFile) -> Values:
    """The headings and paragraphs of an OpenDocument text."""
    if b"encryption-data" in archive.read("META-INF/manifest.xml"):
        raise RecordError("encrypted; save it again without a password")
    content = _xml(archive, "content.xml")
    headings: list[str] = []
    paragraphs: list[str] = []
    for element in content.iter():
        if element.tag in (f"{_TEXT}s", f"{_TEXT}tab", f"{_TEXT}line-break"):
            element.text = " "
    for element in content.iter():
        if element.tag in (f"{_TEXT}h", f"{_TEXT}p"):
            (headings if element.tag == f"{_TEXT}h" else paragraphs).append("".join(element.itertext()))
    return page_values("", headings, paragraphs)
