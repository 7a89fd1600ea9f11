"""Makes files as people keep them: PDF, Word, PowerPoint, Excel, OpenDocument, e-books and mail, small and from text alone."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from html import escape

import openpyxl
import pptx

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
LINE_CHARACTERS = 80


def pdf(pages: Sequence[str], title: str = "") -> bytes:
    """A PDF of Latin-1 text, one string a page; an empty string is a page without text, as a scan is."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for text in pages:
        lines = [text[start : start + LINE_CHARACTERS] for start in range(0, len(text), LINE_CHARACTERS)]
        safe = [line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in lines]
        stream = "BT /F1 11 Tf 14 TL 50 780 Td " + " ".join(f"({line}) Tj T*" for line in safe) + " ET"
        number = len(objects) + 1
        kids.append(f"{number} 0 R")
        font = "<< /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >> >>"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font {font} >> "
            f"/Contents {number + 1} 0 R >>"
        )
        size = len(stream.encode("latin-1"))
        objects.append(f"<< /Length {size} >>\nstream\n{stream}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(pages)} >>"
    objects.append(f"<< /Title ({title}) >>" if title else "<< >>")
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1"))
    start = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.writelines(f"{place:010d} 00000 n \n".encode() for place in places)
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>"
    out.write(f"trailer\n{trailer}\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


def packed(files: Mapping[str, str]) -> bytes:
    """A zip file, with the same bytes for the same content."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return out.getvalue()


def docx(title: str, paragraphs: Sequence[str]) -> bytes:
    """A Word document with a heading."""
    heading = f'<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>{escape(title)}</w:t></w:r></w:p>'
    body = "".join(f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for text in paragraphs)
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    style = '<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style>'
    return packed(
        {
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{main}.document.main+xml"/>'
            f'<Override PartName="/word/styles.xml" ContentType="{main}.styles+xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{OFFICE}/styles" Target="styles.xml"/></Relationships>',
            "word/styles.xml": f'<w:styles xmlns:w="{WORD}">{style}</w:styles>',
            "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{heading}{body}</w:body></w:document>',
        }
    )


def odt(title: str, paragraphs: Sequence[str]) -> bytes:
    """An OpenDocument text with a heading."""
    space = "urn:oasis:names:tc:opendocument:xmlns"
    body = "".join(f"<text:p>{escape(text)}</text:p>" for text in paragraphs)
    return packed(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "META-INF/manifest.xml": f'<manifest xmlns="{space}:manifest:1.0"></manifest>',
            "content.xml": f'<office:document-content xmlns:office="{space}:office:1.0" xmlns:text="{space}:text:1.0">'
            f'<office:body><office:text><text:h text:outline-level="1">{escape(title)}</text:h>{body}'
            "</office:text></office:body></office:document-content>",
        }
    )


def epub(title: str, chapters: Sequence[str]) -> bytes:
    """An e-book of chapters."""
    names = [f"c{place}.xhtml" for place in range(len(chapters))]
    items = "".join(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in names)
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    container = "urn:oasis:names:tc:opendocument:xmlns:container"
    pages = {
        f"OEBPS/{name}": f'<html xmlns="http://www.w3.org/1999/xhtml"><body><h1>Chapter</h1><p>{escape(text)}</p></body></html>'
        for name, text in zip(names, chapters, strict=True)
    }
    return packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": f'<container version="1.0" xmlns="{container}"><rootfiles><rootfile '
            'full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
            "OEBPS/content.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
            f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escape(title)}</dc:title></metadata>'
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
            **pages,
        }
    )


def xlsx(rows: Sequence[Sequence[object]]) -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(list(row))
    book.save(out)
    return out.getvalue()


def slides(pages: Sequence[tuple[str, str]]) -> bytes:
    """A presentation: title and text of each slide."""
    deck, out = pptx.Presentation(), io.BytesIO()
    for title, text in pages:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = title, text
    deck.save(out)
    return out.getvalue()


def mail(subject: str, text: str) -> bytes:
    """A letter with text and HTML."""
    letter = EmailMessage()
    letter["Subject"], letter["From"], letter["To"] = subject, "Ada <ada@example.org>", "bo@example.org"
    letter["Date"] = "Mon, 02 Mar 2026 10:00:00 +0000"
    letter.set_content(text)
    letter.add_alternative(f"<p>{escape(text)}</p>", subtype="html")
    return letter.as_bytes()
