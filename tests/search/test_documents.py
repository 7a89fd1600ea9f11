"""The document store gives back every document, by row and by id, to many threads."""

import gc
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glow.errors import DocumentNotFoundError, FormatError, RecordError
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.records import Document

DOCUMENTS = [
    Document("plain", {"title": ("A title",), "text": ("A text",)}, {"year": 2024, "lang": "en"}),
    Document("linux/tar", {"anchor": ("one", "two", "one")}, {}),
    Document(
        "../../etc/passwd", {"text": ("path\nwith\tlines\0and",)}, {"nested": {"a": [1, None, True, 2.5]}}
    ),
    Document("größe 東京 🐝?#%20", {"title": ("crème brûlée 東京 \U0001f41d",)}, {"ключ": "значение"}),
    Document("'; DROP TABLE documents; --", {"text": ("quotes \" and ' ",)}, {"big": 2**63 - 1}),
]


def write(path: Path, documents: list[Document]) -> DocumentStore:
    with DocumentWriter(path) as writer:
        assert [writer.add(document) for document in documents] == list(range(len(documents)))
        assert writer.count == len(documents)
    return DocumentStore(path)


@pytest.fixture
def store(tmp_path: Path) -> DocumentStore:
    return write(tmp_path / "documents.sqlite", DOCUMENTS)


def test_documents_come_back_by_id_by_row_and_in_order(store: DocumentStore) -> None:
    assert store.count == len(DOCUMENTS)
    assert [store.get(document.id) for document in DOCUMENTS] == DOCUMENTS
    with pytest.raises(DocumentNotFoundError, match="'linux/%'"):
        store.get("linux/%")
    for rows in ([3, 0, 4], [2, 2], []):
        assert store.rows(rows) == [DOCUMENTS[row] for row in rows]
    assert list(store.scan()) == DOCUMENTS
    assert [list(store.scan(*part)) for part in ((1, 3), (4,), (5,))] == [DOCUMENTS[1:3], DOCUMENTS[4:], []]
    pairs = zip(store.scan(), store.scan(), strict=True)  # scans do not disturb each other
    assert [first.id == second.id for first, second in pairs] == [True] * 5


@settings(max_examples=50)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=4))
def test_any_text_comes_back_unchanged(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    document = Document("d", {"anchor": tuple(texts)} if texts else {}, {"values": texts})
    assert write(tmp_path_factory.mktemp("store") / "documents.sqlite", [document]).get("d") == document


@pytest.mark.parametrize(
    "number", [2**63 - 1, 2**64 - 1, 2**64, -(2**70), 10**40, 1e22, 1.7976931348623157e308]
)
def test_any_number_comes_back_unchanged(tmp_path: Path, number: float) -> None:
    document = Document("d", {"text": ("x",)}, {"number": number, "text": f"{number}"})
    found = write(tmp_path / "documents.sqlite", [document]).get("d").metadata["number"]
    assert (found, type(found)) == (number, type(number))


def test_an_empty_field_is_not_stored(tmp_path: Path) -> None:
    store = write(tmp_path / "documents.sqlite", [Document("d", {"title": (), "text": ("x",)})])
    assert store.get("d").fields == {"text": ("x",)}


def test_a_second_document_of_an_id_is_refused_and_the_first_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "documents.sqlite"
    with DocumentWriter(path) as writer:
        writer.add(Document("d", {"text": ("first",)}))
        with pytest.raises(RecordError, match="duplicate '_id': 'd'"):
            writer.add(Document("d", {"text": ("second",)}))
        assert writer.add(Document("e", {"text": ("third",)})) == 1
    assert [document.fields["text"] for document in DocumentStore(path).scan()] == [("first",), ("third",)]


def test_an_id_that_differs_only_in_case_or_accent_form_is_another_one(tmp_path: Path) -> None:
    documents = [Document(name, {"text": (name,)}) for name in ("Café", "café", "cafe\u0301", "café ")]
    store = write(tmp_path / "documents.sqlite", documents)
    assert [store.get(document.id) for document in documents] == documents


def test_a_store_whose_path_has_special_characters_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "a b#c?d%20é"
    folder.mkdir()
    assert write(folder / "documents.sqlite", DOCUMENTS).count == len(DOCUMENTS)


def test_reading_leaves_the_file_and_its_folder_as_they_were(store: DocumentStore, tmp_path: Path) -> None:
    before = (tmp_path / "documents.sqlite").read_bytes()
    store.get("plain")
    assert [path.name for path in tmp_path.iterdir()] == ["documents.sqlite"]
    assert (tmp_path / "documents.sqlite").read_bytes() == before


def test_a_missing_file_or_another_database_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"nowhere\.sqlite"):
        DocumentStore(tmp_path / "nowhere.sqlite")
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE other (x)")
    with pytest.raises(FormatError, match=r"other\.sqlite"):
        DocumentStore(tmp_path / "other.sqlite")


def test_a_thread_that_comes_when_the_folder_is_gone_still_reads(tmp_path: Path) -> None:
    (tmp_path / "version").mkdir()
    store = write(tmp_path / "version" / "documents.sqlite", DOCUMENTS)
    (tmp_path / "version").rename(tmp_path / "removed")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(store.get, [DOCUMENTS[0].id] * 50))
    assert found == [DOCUMENTS[0]] * 50


def test_the_file_is_closed_when_the_store_goes_also_by_threads_that_live_on(tmp_path: Path) -> None:
    def opened() -> int:
        entries = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        return sum(entry.readlink() == tmp_path / "documents.sqlite" for entry in entries)

    store = write(tmp_path / "documents.sqlite", DOCUMENTS)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(store.get, DOCUMENTS[0].id).result()
        assert opened() == 2
        gc.disable()
        del store
        try:
            assert opened() == 0
        finally:
            gc.enable()
