"""MS MARCO's released files as a training collection; the files here are small and of exactly that format."""

import gzip
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from glow.errors import InputError, IntegrityError
from glow.schema import FieldSchema, FieldSpec
from glow.training.data.msmarco import is_msmarco, read_msmarco
from glow.training.data.msmarco_documents import INDEX, MsMarcoDocuments, Rejects, _scan
from tests.training.msmarco_files import DOCUMENTS, GOOD, SCHEMA, run_line, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path)


def rejects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ids(documents: Any) -> list[str]:
    return [document.id for document in documents]


def test_the_folder_is_known_by_its_documents(folder: Path, tmp_path: Path) -> None:
    assert is_msmarco(folder)
    assert not is_msmarco(tmp_path)
    (tmp_path / "msmarco-docs.tsv.gz").write_bytes(b"")
    assert is_msmarco(tmp_path)


def test_documents_are_read_by_number_and_in_order_with_empty_fields_empty(folder: Path) -> None:
    documents = read_msmarco(folder, "train", SCHEMA).documents
    assert len(documents) == 7
    assert ids(documents) == ["D1555982", "D301595", "D7", "D42", "D500", "D501", "D502"]
    assert documents[0].fields == {
        "url": ("https://example.org/bees",),
        "title": ("Bees – a title",),
        "text": ("Bees find home by the sun.",),
    }
    assert documents[1].fields == {
        "url": ("http://example.org/hives",),
        "title": (),
        "text": ("Hives are warm.",),
    }
    assert documents[-1] == list(documents)[6]
    assert ids(documents[1:3]) == ["D301595", "D7"]
    with pytest.raises(IndexError):
        documents[7]


def test_fields_follow_the_schema(folder: Path) -> None:
    schema = FieldSchema.preset("bison-msmarco")
    assert set(read_msmarco(folder, "train", schema).documents[0].fields) == {"url", "title"}
    body = SCHEMA.model_copy(
        update={"fields": (FieldSpec(name="body", tokens=9), FieldSpec(name="anchor", tokens=9))}
    )
    assert read_msmarco(folder, "train", body).documents[1].fields == {"body": ("Hives are warm.",)}
    other = SCHEMA.model_copy(update={"fields": (FieldSpec(name="anchor", tokens=9),)})
    with pytest.raises(InputError, match=r"fields anchor, expected some of url, title"):
        read_msmarco(folder, "train", other)


def test_damaged_documents_are_counted_and_kept_aside_with_line_and_reason(folder: Path) -> None:
    documents = read_msmarco(folder, "train", SCHEMA).documents
    found = rejects(folder / "msmarco-docs.rejects.jsonl")
    assert isinstance(documents, MsMarcoDocuments)
    assert documents.rejects == len(found) == 6
    assert [(reject["line"], reject["reason"]) for reject in found] == [
        (2, "expected 4 columns (docid, url, title, body), found 3"),
        (4, "not UTF-8: byte 0xff at position 32"),
        (6, "expected a docid of 1 to 64 bytes without NUL, found 0 bytes"),
        (7, "no text in url, title and body"),
        (8, "expected 4 columns (docid, url, title, body), found 5"),
        (10, "a line before has the id D7 too"),
    ]
    assert found[0]["start"] == "D8\thttp://example.org/no-body\tOnly three columns"


def test_queries_are_the_judged_ones_in_the_judgements_order(folder: Path) -> None:
    collection = read_msmarco(folder, "train", SCHEMA)
    assert list(collection.queries) == ["how much is a hive", "does xpress bet charge"]
    assert list(collection.query_ids) == ["320792", "174249"]
    assert list(collection.relevant) == [{1}, {0}]
    assert collection.pairs.tolist() == [[0, 1], [1, 0]]


def test_negatives_are_the_best_ranked_that_are_not_judged_relevant(folder: Path) -> None:
    """Rank decides, not the line's place; unknown documents are left out; a query's rows may lie apart."""
    negatives = read_msmarco(folder, "train", SCHEMA).negatives
    assert negatives is not None
    assert list(negatives) == [(2,), (3, 1, 2)]


def test_no_more_than_ten_negatives_are_kept(folder: Path) -> None:
    lines = [f"N{number}\tu{number}\tt\tb\n" for number in range(100)]
    (folder / "msmarco-docs.tsv").write_bytes(b"".join(GOOD) + "".join(lines).encode())
    run = [run_line("320792", f"N{(number * 37) % 100}", number + 1) for number in range(100)]
    (folder / "msmarco-doctrain-top100.gz").write_bytes(gzip.compress("".join(run).encode()))
    negatives = read_msmarco(folder, "train", SCHEMA).negatives
    assert negatives is not None
    assert negatives[0] == tuple(4 + (number * 37) % 100 for number in range(10))
    assert negatives[1] == ()


def test_unusable_lines_of_a_split_are_kept_aside(folder: Path) -> None:
    read_msmarco(folder, "train", SCHEMA)
    found = rejects(folder / "msmarco-doctrain.rejects.jsonl")
    assert [(reject["file"], reject["line"], reject["reason"]) for reject in found] == [
        ("msmarco-doctrain-queries.tsv.gz", 4, "expected 2 columns with text (qid, query), found 1"),
        ("msmarco-doctrain-qrels.tsv", 6, "expected qid, 0, docid and a whole number, found 1 columns"),
        ("msmarco-doctrain-qrels.tsv", 3, "no document has the id D999"),
        ("msmarco-doctrain-qrels.tsv", 4, "no query has the id 77"),
        ("msmarco-doctrain-top100.gz", 3, "no document has the id D404"),
        (
            "msmarco-doctrain-top100.gz",
            6,
            "expected qid, Q0, docid, rank as a whole number, score and tag, found 6 columns",
        ),
        ("msmarco-doctrain-top100.gz", 8, "no query has the id 66"),
    ]


def test_the_number_of_unusable_lines_is_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_msmarco(folder, "train", SCHEMA)
    assert "6 lines cannot be used (msmarco-docs.tsv line 2: expected 4 columns" in caplog.text


def test_a_clean_split_leaves_no_rejects(folder: Path) -> None:
    (folder / "msmarco-docs.tsv").write_bytes(b"".join(GOOD))
    (folder / "msmarco-docdev-queries.tsv").write_bytes(b"1\tbees\n")
    (folder / "msmarco-docdev-qrels.tsv").write_bytes(b"1 0 D42 1\n")
    assert read_msmarco(folder, "dev", SCHEMA).negatives is None
    assert not list(folder.glob("*.rejects.jsonl"))


def test_the_index_is_used_again_and_made_anew_when_the_documents_change(
    folder: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "run"
    first = read_msmarco(folder, "train", SCHEMA, cache).documents
    assert isinstance(first, MsMarcoDocuments)
    made = (cache / INDEX).stat().st_mtime_ns
    again = read_msmarco(folder, "train", SCHEMA, cache).documents
    assert isinstance(again, MsMarcoDocuments)
    assert (cache / INDEX).stat().st_mtime_ns == made
    assert again.rejects == 6
    assert list(again) == list(first)
    assert not (folder / INDEX).exists()
    with (folder / "msmarco-docs.tsv").open("ab") as file:
        file.write(b"D600\tu\tt\tb\n")
    assert ids(read_msmarco(folder, "train", SCHEMA, cache).documents)[-1] == "D600"


def test_a_damaged_index_is_made_anew(folder: Path) -> None:
    read_msmarco(folder, "train", SCHEMA)
    whole = (folder / INDEX).read_bytes()
    (folder / INDEX).write_bytes(whole[: len(whole) // 2])
    assert len(read_msmarco(folder, "train", SCHEMA).documents) == 7
    assert (folder / INDEX).read_bytes() == whole


def test_documents_that_change_while_they_are_read_are_noticed(folder: Path) -> None:
    documents = read_msmarco(folder, "train", SCHEMA).documents
    (folder / "msmarco-docs.tsv").write_bytes(b"".join(reversed(DOCUMENTS)))
    with pytest.raises(IntegrityError, match="has changed"):
        documents[0]


def test_another_document_in_a_known_place_is_noticed(folder: Path) -> None:
    documents = read_msmarco(folder, "train", SCHEMA).documents
    (folder / "msmarco-docs.tsv").write_bytes(b"".join(DOCUMENTS).replace(b"D1555982", b"D1555983"))
    with pytest.raises(IntegrityError, match="has changed"):
        documents[0]


def test_an_id_that_starts_like_a_longer_one_is_another(folder: Path) -> None:
    (folder / "msmarco-doctrain-qrels.tsv").write_bytes(
        b"320792 0 D15559820 1\n320792 0 D42 1\n320792 0 D4 1\n"
    )
    assert list(read_msmarco(folder, "train", SCHEMA).relevant) == [{3}]


def test_packed_documents_are_refused_with_the_command_that_unpacks_them(folder: Path) -> None:
    (folder / "msmarco-docs.tsv").rename(folder / "msmarco-docs.tsv.gz")
    with pytest.raises(InputError, match=r"gunzip --keep .*msmarco-docs\.tsv\.gz"):
        read_msmarco(folder, "train", SCHEMA)


@pytest.mark.parametrize("name", ["queries.tsv.gz", "qrels.tsv"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / f"msmarco-doctrain-{name}").unlink()
    with pytest.raises(InputError, match=rf"neither msmarco-doctrain-{name.removesuffix('.gz')} nor"):
        read_msmarco(folder, "train", SCHEMA)


def test_a_torn_packed_file_is_named(folder: Path) -> None:
    path = folder / "msmarco-doctrain-top100.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match=r"top100\.gz is damaged"):
        read_msmarco(folder, "train", SCHEMA)


def test_a_file_that_is_something_else_is_refused(folder: Path) -> None:
    (folder / "msmarco-docs.tsv").write_bytes(b'{"_id": "1", "title": "one"}\n' * 3 + GOOD[0])
    with pytest.raises(InputError, match="1 of its 4 lines are documents"):
        read_msmarco(folder, "train", SCHEMA)
    assert not (folder / INDEX).exists()


def test_rejects_appear_whole(tmp_path: Path) -> None:
    """Another process may write, or read, the same file meanwhile."""
    path = tmp_path / "new" / "rejects.jsonl"
    with Rejects(path) as first:
        first.add("file", 1, "bad", b"line")
        assert not path.exists()
    before = path.read_bytes()
    with Rejects(path) as second:
        assert path.read_bytes() == before
        second.add("file", 2, "bad", b"line")
    assert [reject["line"] for reject in rejects(path)] == [2]
    with Rejects(path):
        pass
    assert not list(path.parent.iterdir())


def test_processes_that_start_together_make_one_index(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, scans = tmp_path / "run", tmp_path / "scans"

    def slow(path: Path, found: Rejects) -> Any:
        with scans.open("a", encoding="utf-8") as file:
            file.write("scan\n")
        time.sleep(0.3)
        return _scan(path, found)

    monkeypatch.setattr("glow.training.data.msmarco_documents._scan", slow)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=read_msmarco, args=(folder, "train", SCHEMA, cache)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert scans.read_text().split() == ["scan"]
    assert len(rejects(cache / "msmarco-docs.rejects.jsonl")) == 6
    assert len(rejects(cache / "msmarco-doctrain.rejects.jsonl")) == 7


def test_the_hash_of_the_documents_is_of_ids_and_places(folder: Path, tmp_path: Path) -> None:
    def hashed(cache: str) -> str:
        documents = read_msmarco(folder, "train", SCHEMA, tmp_path / cache).documents
        assert isinstance(documents, MsMarcoDocuments)
        return documents.hash

    first = hashed("a")
    assert hashed("a") == hashed("b") == first
    (folder / "msmarco-docs.tsv").write_bytes(b"".join(DOCUMENTS).replace(b"D502", b"D503"))
    assert hashed("a") != first
