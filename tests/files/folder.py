"""A folder of 300 files as people keep them: each format, odd names, empty, huge, damaged and foreign ones."""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from tests.files import office

WORDS = (
    "amber violet crimson teal ivory olive scarlet indigo copper silver maroon".split(),
    "otter heron badger lynx magpie beaver stoat falcon hedgehog turtle walrus crane mole".split(),
    "photographed repaired painted borrowed carried polished hid sold measured found".split(),
    "violin ladder lantern barrel compass kettle saddle anvil telescope basket hammock bell drum flag oar rope wheel".split(),
    "Lisbon Oslo Vienna Turin Porto Ghent Riga".split(),
)
FOLDERS = ("", "manuals/", "wiki/2025/", "Straße & Café/", "a b/ü#1%/")
NAMES = ("note {n}", "Übersicht-{n}", "report_{n}", "{n} (copy)", "plan #{n}", "100% {n}", 'r\'ead "me" {n}')


def _markdown(sentence: str) -> bytes:
    return f"---\ntags: [note]\n---\n# Notes of the day\n\n{sentence}\n".encode()


def _page(sentence: str, encoding: str) -> bytes:
    text = (
        f"<html><head><meta charset={encoding}><title>Größe und Maß</title></head><body><main><h1>Größe</h1>"
    )
    return f"{text}<p>{sentence} It was seen there more than once this year.</p></main></body></html>".encode(
        encoding
    )


MAKERS: dict[str, Callable[[str], bytes]] = {
    ".md": _markdown,
    ".MD": _markdown,
    ".html": lambda sentence: _page(sentence, "utf-8"),
    ".htm": lambda sentence: _page(sentence, "iso-8859-1"),
    ".txt": lambda sentence: f"To do\n\n{sentence}\n".encode(),
    ".TXT": lambda sentence: f"Zu erledigen: Grüße\r\n\r\n{sentence}\r\n".encode("windows-1252"),
    ".pdf": lambda sentence: office.pdf(["A page before it.", sentence], "Manual"),
    ".docx": lambda sentence: office.docx("A letter", "Dear all", sentence),
    ".pptx": lambda sentence: office.slides("Results", "Findings", sentence),
    ".xlsx": lambda sentence: office.xlsx("A list", "Seen", sentence),
    ".odt": lambda sentence: office.odt("A protocol", "Present", sentence),
    ".epub": lambda sentence: office.epub("A novel", "Chapter", sentence),
    ".eml": lambda sentence: office.mail("Your question", "Answer", "See above.", sentence),
    ".csv": lambda sentence: f"id;title;price\n{zlib.crc32(sentence.encode())};{sentence};12,50\n".encode(),
}
"""Ending -> a file with a sentence in it."""
ENTITIES = "".join(f"<!ENTITY a{each + 1} '{f'&a{each};' * 10}'>" for each in range(9))
LAUGHS = f"<!DOCTYPE x [<!ENTITY a0 'ha'>{ENTITIES}]><x>&a9;</x>"
DAMAGED: dict[str, tuple[bytes, str]] = {
    "cut.pdf": (office.pdf(["It is cut off."])[:200], "damaged or not a PDF"),
    "scanned.pdf": (office.pdf(["", ""]), "no text: scanned pages need OCR, for example ocrmypdf"),
    "locked.pdf": (office.pdf(["Secret"], trailer=office.LOCKED), "encrypted; remove its password"),
    "cut.docx": (office.docx("A letter", "Dear all", "It is cut off.")[:-300], "damaged or not .docx: File is"),
    "word.docx": (b"\x00\x01 not a zip file", "damaged or not .docx: File is not a zip file"),
    "old.docx": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "encrypted or of an old version"),
    "empty.docx": (b"", "no text: the file is empty"),
    "empty.md": (b"", "no text: the file is empty"),
    "blank.txt": (b" \n\n ", "no text: the file is empty"),
    "noise.html": (hashlib.shake_128(b"noise").digest(50_000), "not text"),
    "noise.xlsx": (hashlib.shake_128(b"sheet").digest(5_000), "damaged or not .xlsx: File is not a zip file"),
    "random.eml": (bytes(range(256)) * 20, "not text"),
    "bomb.odt": (office.bomb(600), "unpacks to more than 536,870,912 bytes"),
    "large.odt": (office.packed({"content.xml": "<a>" + "0" * 60_000_000 + "</a>"}), ""),
    "laughs.odt": (office.packed({"META-INF/manifest.xml": "<manifest/>", "content.xml": LAUGHS}), "declares entities in content.xml"),
}  # fmt: skip
"""Files that no document comes of; each is named among the rejects, with how its reason begins."""
FOREIGN = {"photos.zip": 3, "logo.psd": 1, "film.mp4": 2, "Makefile": 1}
"""Files that nobody reads as text -> how many; the build counts them by ending."""
FILES = 300


@dataclass
class Folder:
    """What lies in the folder."""

    path: Path
    sentences: dict[str, str] = field(default_factory=dict)  # path of each readable file -> a sentence of it


def sentences() -> Iterator[str]:
    """Sentences of five words that vary with different periods, so that no two have much in common."""
    for number in count():
        words = (each[(number * step) % len(each)] for each, step in zip(WORDS, (1, 3, 3, 7, 2), strict=True))
        colour, animal, verb, thing, place = words
        yield f"The {colour} {animal} {verb} a {thing} near the harbour of {place}."


def make(path: Path) -> Folder:
    folder, told, filler = Folder(path), sentences(), islice(sentences(), 1_000, None)
    for name, (data, _) in DAMAGED.items():
        _write(path / "damaged" / name, data)
    for name, many in FOREIGN.items():
        for number in range(many):
            _write(path / f"{number}" / name, b"\x00" * 100)
    _write(path / ".obsidian" / "workspace.md", b"# The hidden workspace\n\nNobody wants to find this.\n")
    _write(path / ".hidden.md", b"# Hidden\n\nNobody wants to find this either.\n")
    (path / "out.md").symlink_to("/etc/hostname")
    (path / "loop").symlink_to(path)
    (path / "dangling.md").symlink_to(path / "nowhere.md")
    sentence = next(told)
    page = " ".join(next(filler) for _ in range(10))
    _write(path / "huge.txt", "\n\n".join([page] * 400 + [sentence]).encode())
    folder.sentences["huge.txt"] = sentence
    _write(path / "products.json", json.dumps([{"id": "p1", "title": (sentence := next(told))}]).encode())
    folder.sentences["products.json"] = sentence
    others = len(DAMAGED) + sum(FOREIGN.values()) + 6
    for number in range(FILES - others):
        ending = list(MAKERS)[number % len(MAKERS)]
        place = FOLDERS[number % len(FOLDERS)] if ending != ".csv" else ""
        name = place + NAMES[number % len(NAMES)].format(n=number) + ending
        folder.sentences[name] = sentence = next(told)
        _write(path / name, MAKERS[ending](sentence))
    return folder


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
