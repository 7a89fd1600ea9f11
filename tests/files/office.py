"""Makes files as people keep them: PDF, Word, PowerPoint, Excel, OpenDocument, e-books and mail, each as small as its format allows."""

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
ODF = "urn:oasis:names:tc:opendocument:xmlns"
DC = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'
LINE_CHARACTERS = 80


def pdf(pages: Sequence[str], title: str = "", trailer: str = "") -> bytes:
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
    objects.append(f"<< /Title ({title}) /Author (Ann) /CreationDate (D:20200203100000Z) >>")
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1"))
    start = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.writelines(f"{place:010d} 00000 n \n".encode() for place in places)
    members = f"/Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R {trailer}"
    out.write(f"trailer\n<< {members} >>\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


LOCKED = "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{0}> /U <{0}> >> /ID [<00> <00>]".format(
    "ab" * 32
)
"""In a PDF's trailer: nobody knows the password."""


def packed(files: Mapping[str, str]) -> bytes:
    """A zip file, with the same bytes for the same content."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return out.getvalue()


def bomb(size_mb: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("content.xml", "w", force_zip64=True) as member:
            for _ in range(size_mb):
                member.write(bytes(1 << 20))
    return out.getvalue()


def docx(title: str, heading: str, text: str) -> bytes:
    style = '<w:style w:type="paragraph" w:styleId="h"><w:name w:val="heading 1"/></w:style>'
    body = f'<w:p><w:pPr><w:pStyle w:val="h"/></w:pPr><w:r><w:t>{escape(heading)}</w:t></w:r></w:p>'
    body += f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>"
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    relation = '<Relationships xmlns="{0}/relationships"><Relationship Id="r1" Type="{1}/{2}" Target="{3}"/></Relationships>'
    return packed(
        {
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="xml" ContentType="application/xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{main}.document.main+xml"/></Types>',
            "_rels/.rels": relation.format(PACKAGE, OFFICE, "officeDocument", "word/document.xml"),
            "word/_rels/document.xml.rels": relation.format(PACKAGE, OFFICE, "styles", "styles.xml"),
            "word/styles.xml": f'<w:styles xmlns:w="{WORD}">{style}</w:styles>',
            "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
            "docProps/core.xml": f'<cp:coreProperties xmlns:cp="{PACKAGE}/metadata/core-properties" {DC} '
            f'xmlns:t="http://purl.org/dc/terms/"><dc:title>{escape(title)}</dc:title>'
            "<dc:creator>Ann</dc:creator><t:created>2020-02-03T10:00:00Z</t:created></cp:coreProperties>",
        }
    )


def odt(title: str, heading: str, text: str) -> bytes:
    """Its first blank is an element, as where several stand together."""
    meta = f"<dc:title>{escape(title)}</dc:title><dc:creator>Ann</dc:creator><dc:date>2020-02-03T10:00:00</dc:date>"
    body = f"<text:h>{escape(heading)}</text:h><text:p>{escape(text).replace(' ', '<text:s/>', 1)}</text:p>"
    names = f'xmlns:office="{ODF}:office:1.0" xmlns:text="{ODF}:text:1.0"'
    return packed(
        {
            "META-INF/manifest.xml": "<manifest/>",
            "meta.xml": f"<office:document-meta {names} {DC}><office:meta>{meta}</office:meta></office:document-meta>",
            "content.xml": f"<office:document-content {names}><office:body><office:text>{body}"
            "</office:text></office:body></office:document-content>",
        }
    )


def epub(title: str, heading: str, text: str) -> bytes:
    """An e-book, whose second chapter has the heading."""
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>'
    item = '<item id="{0}" href="{0}.xhtml" media-type="application/xhtml+xml"/>'
    return packed(
        {
            "META-INF/container.xml": f'<container version="1.0" xmlns="{ODF}:container"><rootfiles><rootfile '
            'full-path="o/c.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
            "o/c.opf": f'<package xmlns="http://www.idpf.org/2007/opf" version="2.0"><metadata {DC}>'
            f"<dc:title>{escape(title)}</dc:title><dc:creator>Ann</dc:creator><dc:date>2020-02-03</dc:date>"
            f"</metadata><manifest>{item.format('a')}{item.format('b')}</manifest>"
            '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>',
            "o/a.xhtml": page.format("<p>It began in May.</p>"),
            "o/b.xhtml": page.format(f"<h1>{escape(heading)}</h1><p>{escape(text)}</p>"),
        }
    )


def xlsx(title: str, heading: str, text: str) -> bytes:
    """The heading is the sheet's name."""
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.properties.title, book.properties.creator, book.active.title = title, "Ann", heading
    book.active.append(["price", 1.5, None])
    book.active.append([text])
    book.save(out)
    return out.getvalue()


def slides(title: str, heading: str, text: str) -> bytes:
    """A presentation, whose second slide has the heading."""
    deck, out = pptx.Presentation(), io.BytesIO()
    deck.core_properties.title, deck.core_properties.author = title, "Ann"
    for parts in (("", "Welcome"), (heading, text)):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = parts
    deck.save(out)
    return out.getvalue()


def mail(title: str, heading: str, text: str, plain: str = "") -> bytes:
    """A letter of HTML, or of plain text with HTML beside it, and a picture."""
    letter = EmailMessage()
    letter["Subject"], letter["From"], letter["To"] = title, "Ann", "Bob"
    letter["Date"] = "Mon, 03 Feb 2020 10:00:00 +0000"
    html = f"<html><body><h2>{escape(heading)}</h2><p>{escape(text)}</p></body></html>"
    if plain:
        letter.set_content(plain)
        letter.add_alternative(html, subtype="html")
    else:
        letter.set_content(html, subtype="html", charset="iso-8859-1")
    letter.add_attachment(b"\0\1", maintype="image", subtype="png", filename="a.png")
    return letter.as_bytes()


MAKERS = {".docx": docx, ".epub": epub, ".odt": odt, ".xlsx": xlsx, ".pptx": slides, ".eml": mail}
"""Ending -> a file with a title of its own, a heading and a paragraph."""
