"""Part numbers, versions and names with signs: the default model finds the document that has them."""

from pathlib import Path

import pytest

from glow.artifact import default_model
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.records import Document
from glow.search import EncodedQuery, analyze_query, rank_hybrid
from tests.made_index import made, write

TEXTS = (
    "The pump {} delivers twelve litres a minute.",
    "Replace the seal with part {} after two years.",
    "Support for {} was added in spring.",
    "An error {} means that the cable is loose.",
)
NAMES = (
    "ZZ-1033 POCS-30017 QX7731 AB/12-9 4711-B X100.2 ISO-9001 DIN-912 RFC-2616 CVE-2024-3094 0x8007 SHA-256 UTF-8 8.8.4 "
    "v1.2.3 2.0.0-rc1 C++ C# F# .NET node.js A4 802.11ac M8x40 LM317T BC547 RJ45 USB-C 1N4148 ATmega328P XK-42/b H.264 "
    "PSR-4 PEP-8 T-1000 KB5034441 INC0012345 E-404 #1289 3.5mm"
).split()
"""No two differ in a digit alone: of such twins, dense search may put the other one first."""
TYPED = {
    "zz1033": "ZZ-1033", "pocs30017": "POCS-30017", "qx-7731": "QX7731", "iso9001": "ISO-9001", "rfc2616": "RFC-2616",
    "sha256": "SHA-256", "utf8": "UTF-8", "c++": "C++", ".net": ".NET", "pump zz-1033": "ZZ-1033",
    "NODE.JS": "node.js", "usb c": "USB-C",
}  # fmt: skip


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("identifiers")
    rows = [{"_id": name, "text": TEXTS[at % len(TEXTS)].format(name)} for at, name in enumerate(NAMES)]
    root = made(Path(default_model()), write(folder / "corpus.jsonl", rows), folder / "index", index="flat")
    return Index.open(root.folder(root.current()))


@pytest.mark.parametrize(("text", "name"), [*zip(NAMES, NAMES, strict=True), *TYPED.items()])
def test_its_document_comes_first(index: Index, text: str, name: str) -> None:
    reading = analyze_query(index, text)
    query = EncodedQuery(reading.text, index.encoder.run([reading.tokens])[0])
    first = rank_hybrid(index, query, 100).rows[:1].tolist()
    assert index[STORED_FIELDS].rows(first)[0].id == name


def test_an_explanation_names_the_field_of_each_word(index: Index) -> None:
    document = Document("d", {"title": ("Boots",), "text": ("Dry boots slowly.",)})
    assert index.explainer is not None
    terms = index.explainer.explain_document(document).terms
    assert {(term.word, term.field, term.tf) for term in terms} >= {
        ("boots", "title", 1),
        ("slowly", "text", 1),
    }
