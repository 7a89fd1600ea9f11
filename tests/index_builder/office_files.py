"""Makes office files, each as small as its format allows."""

import importlib
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path

from pptx import Presentation

__all__ = ["write_file", "write_pdf"]

_WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>'
    '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/>'
    "</Types>"
)
_RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{}" Target="{}"/></Relationships>'
)
_CORE = (
    '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:t="http://purl.org/dc/terms/"><dc:title>{}</dc:title>'
    "<dc:creator>Ann</dc:creator><t:created>2020-02-03T10:00:00Z</t:created></cp:coreProperties>"
)
_ODF = 'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'


def write_pdf(path: Path, pages: list[str], title: str = "", more: str = "") -> Path:
    """A PDF with one line of text on each page; `more` goes into the trailer."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 50 800 Td ({text}) Tj ET" if text else ""
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        ]
    objects.append(f"<< /Title ({title}) /Author (Ann) /CreationDate (D:20200203100000Z) >>")
    data, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(len(data))
        data += f"{number} 0 obj\n{each}\nendobj\n"
    rows = "".join(f"{place:010d} 00000 n \n" for place in places)
    start, size = len(data), len(objects) + 1
    data += f"xref\n0 {size}\n0000000000 65535 f \n{rows}trailer << /Size {size} /Root 1 0 R /Info {size - 1} 0 R {more} >>\n"
    path.write_text(f"{data}startxref\n{start}\n%%EOF", encoding="latin-1")
    return path


def _archive(path: Path, members: Mapping[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)


def _docx(path: Path, title: str, heading: str, text: str) -> None:
    style = f'<w:styles {_WORD}><w:style w:type="paragraph" w:styleId="h"><w:name w:val="heading 1"/></w:style></w:styles>'
    body = f'<w:p><w:pPr><w:pStyle w:val="h"/></w:pPr><w:r><w:t>{heading}</w:t></w:r></w:p><w:p><w:r><w:t>{text}</w:t></w:r></w:p>'
    _archive(
        path,
        {
            "[Content_Types].xml": _TYPES,
            "_rels/.rels": _RELATIONS.format("officeDocument", "word/document.xml"),
            "word/document.xml": f"<w:document {_WORD}><w:body>{body}</w:body></w:document>",
            "word/styles.xml": style,
            "word/_rels/document.xml.rels": _RELATIONS.format("styles", "styles.xml"),
            "docProps/core.xml": _CORE.format(title),
        },
    )


def _epub(path: Path, title: str, heading: str, text: str) -> None:
    container = (
        '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="o/c.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="2.0"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{title}</dc:title><dc:creator>Ann</dc:creator><dc:date>2020-02-03</dc:date></metadata><manifest>"
        '<item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="c"/></spine></package>'
    )
    chapter = (
        f'<html xmlns="http://www.w3.org/1999/xhtml"><body><h1>{heading}</h1><p>{text}</p></body></html>'
    )
    _archive(path, {"META-INF/container.xml": container, "o/c.opf": package, "o/c.xhtml": chapter})


def _odt(path: Path, title: str, heading: str, text: str) -> None:
    meta = (
        f'<office:document-meta {_ODF} xmlns:dc="http://purl.org/dc/elements/1.1/"><office:meta><dc:title>{title}</dc:title>'
        "<dc:creator>Ann</dc:creator><dc:date>2020-02-03T10:00:00</dc:date></office:meta></office:document-meta>"
    )
    text = text.replace(" ", "<text:s/>", 1)
    body = f"<office:body><office:text><text:h>{heading}</text:h><text:p>{text}</text:p></office:text></office:body>"
    content = f"<office:document-content {_ODF}>{body}</office:document-content>"
    _archive(path, {"META-INF/manifest.xml": "<manifest/>", "meta.xml": meta, "content.xml": content})


def _xlsx(path: Path, title: str, heading: str, text: str) -> None:
    workbook = importlib.import_module("openpyxl").Workbook()
    workbook.properties.title, workbook.properties.creator = title, "Ann"
    sheet = workbook.active
    sheet.title = heading
    sheet.append(["price", 1.5, None])
    sheet.append([text])
    workbook.save(path)


def _pptx(path: Path, title: str, heading: str, text: str) -> None:
    slides = Presentation()
    slides.core_properties.title, slides.core_properties.author = title, "Ann"
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = heading, text
    slides.save(str(path))


def _eml(path: Path, title: str, heading: str, text: str) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"], mail["Date"] = (
        "Ann",
        "Bob",
        title,
        "Mon, 03 Feb 2020 10:00:00 +0000",
    )
    mail.set_content(
        f"<html><body><h2>{heading}</h2><p>{text}</p></body></html>", subtype="html", charset="iso-8859-1"
    )
    mail.add_attachment(b"\0\1", maintype="image", subtype="png", filename="a.png")
    path.write_bytes(mail.as_bytes())


_WRITERS = {".docx": _docx, ".epub": _epub, ".odt": _odt, ".xlsx": _xlsx, ".pptx": _pptx, ".eml": _eml}


def write_file(path: Path, title: str, heading: str, text: str) -> Path:
    """A file with a title of its own, a heading and a paragraph, in the format of its name."""
    _WRITERS[path.suffix](path, title, heading, text)
    return path
