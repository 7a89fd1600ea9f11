"""A large corpus stays on disk, and gives what the list of its documents gives."""

import json
from pathlib import Path

import pytest

from glow.collection import read_documents
from glow.errors import GlowError, InputError, IntegrityError
from glow.negatives import documents_hash
from glow.schema import FieldSchema, FieldSpec
from glow.training.data import CorpusFile, read_collection

SCHEMA = FieldSchema(name="x", query_tokens=9, document_tokens=9, fields=(FieldSpec(name="text", tokens=9),))
LINES = (
    b'\xef\xbb\xbf{"_id": "bees", "text": "Bees \xe2\x80\x93 find home"}\r\n'
    b"\n"
    b'{"_id": "none", "text": " ", "title": "no text field"}\n'
    b'{"_id": 7, "text": ["two", "values"], "year": 2001}\n'
    b'{"_id": "bees", "text": "the same id again"}\n'
    b'{"_id": "last", "text": "no line end"}'
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(LINES)
    return path


def test_it_gives_what_the_list_gives(corpus: Path) -> None:
    listed, read = list(read_documents(corpus, ("text",))), CorpusFile(corpus, ("text",))
    assert len(read) == 4
    assert read.ids == ["bees", "7", "bees", "last"]
    assert list(read) == listed == [read[number] for number in range(4)] == read[:]
    assert (read[-1], read[1:3]) == (listed[-1], listed[1:3])
    assert documents_hash(read) == documents_hash(listed)
    with pytest.raises(IndexError):
        read[4]


@pytest.mark.parametrize("line", [b"broken\n", b'{"text": "no id"}\n', b'{"_id": "x", "text": "\xff"}\n'])
def test_a_bad_line_has_the_error_that_the_list_has(corpus: Path, line: bytes) -> None:
    corpus.write_bytes(LINES + b"\n" + line)
    with pytest.raises(GlowError) as listed:
        list(read_documents(corpus, ("text",)))
    with pytest.raises(type(listed.value)) as read:
        CorpusFile(corpus, ("text",))
    assert str(read.value) == str(listed.value)
    assert "corpus.jsonl line 7" in str(read.value)


@pytest.mark.parametrize(
    "changed", [LINES.replace(b'"_id": 7', b'"_id": 8'), LINES[:90], LINES[10:]], ids=["id", "cut", "moved"]
)
def test_a_file_that_changes_meanwhile_is_noticed(corpus: Path, changed: bytes) -> None:
    read = CorpusFile(corpus, ("text",))
    corpus.write_bytes(changed)
    with pytest.raises(IntegrityError, match="has changed"):
        list(read)


def test_a_collection_on_disk_is_the_one_in_memory(corpus: Path) -> None:
    folder = corpus.parent
    queries = [{"_id": "q1", "text": "home"}, {"_id": "q2", "text": "end"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq2\tlast\t1\nq1\tbees\t1\n")
    memory = read_collection(folder, "train", SCHEMA)
    disk = read_collection(folder, "train", SCHEMA, most_bytes=len(LINES) - 1)
    assert isinstance(memory.documents, list)
    assert isinstance(disk.documents, CorpusFile)
    assert list(disk.documents) == memory.documents
    assert disk.relevant == memory.relevant == [{3}, {2}]
    assert disk.query_ids == memory.query_ids
    assert isinstance(read_collection(folder, "train", SCHEMA, most_bytes=len(LINES)).documents, list)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*corpus\.jsonl"):
        read_collection(tmp_path, "train", SCHEMA)
    with pytest.raises(InputError, match=r"cannot read .*corpus\.jsonl"):
        CorpusFile(tmp_path / "corpus.jsonl", ("text",))
