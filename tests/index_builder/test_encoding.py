"""Texts are encoded as blocks or a few at once, with the same vectors; what fails is tried again, then searched for the documents to blame."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.collection import read_documents
from glow.errors import BuildError
from glow.index import Records, Texts
from glow.index.passages import TextsOfDocuments
from glow.index.stored_fields import DocumentWriter
from glow.records import Document
from glow.runtime import TERMS, Device, Model
from glow.text import TermTable
from glow_index_builder.encoding import blocks
from glow_index_builder.encoding.blocks import (
    Block,
    BlockEncoder,
    EncodedBlocks,
    plan_blocks,
    read_block,
    write_block,
)
from glow_index_builder.encoding.schedule import FIRST_FAILURES, Run, encode_blocks, encode_texts
from glow_index_builder.encoding.text_encoder import EncodedTexts, TextEncoder


@pytest.fixture(scope="session")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)


@pytest.fixture(scope="session")
def documents(toy_corpus: Path, model: Model) -> list[Document]:
    return list(read_documents(toy_corpus, model.preprocessor.schema.names))


def job_of(folder: Path, model: Model, documents: Sequence[Document]) -> BlockEncoder:
    with DocumentWriter(folder / "store") as writer:
        for document in documents:
            writer.add(document)
    model.preprocessor.terms.save(folder / "terms")
    (folder / "shards").mkdir()
    return BlockEncoder(model.folder, folder / "store", folder / "terms", None, folder / "shards", "cpu", 1)


def test_row_i_is_document_i(model: Model, documents: list[Document], tmp_path: Path) -> None:
    job, block = job_of(tmp_path, model, documents), Block(7, 30, skip=((9, "bad"),))
    encoded = job.encode(block)
    kept = documents[7:9] + documents[10:30]
    assert encoded == read_block(job.folder, Block(7, 30))
    assert (encoded.rows, encoded.skip) == (22, ((9, "bad"),))
    vectors = np.fromfile(job.folder / f"{block.name}.f32", "<f4").reshape(-1, 32)
    for row, document in enumerate(kept):
        alone = model.encoder("document").encode([model.preprocessor.document(document)])[0]
        np.testing.assert_allclose(vectors[row], alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_documents_that_lose_words_are_counted_by_field(model: Model, tmp_path: Path) -> None:
    long = [
        Document("short", {"title": ("bees",)}),
        Document("title", {"title": ("bees " * 100,)}),
        Document("both", {"title": ("bees " * 100,), "text": ("owls " * 100,)}),
    ]
    assert job_of(tmp_path, model, long).encode(Block(0, 3)).truncated == {"title": 2, "text": 1}


def test_long_documents_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CHUNK_CHARACTERS", 100)
    documents = [Document(str(n), {"text": ("x" * 40, "y" * 20)}) for n in range(5)]
    assert [len(chunk) for chunk in blocks._chunks(documents)] == [2, 2, 1]


def test_no_more_than_a_chunk_is_read_before_it_is_encoded(
    model: Model, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading ahead of the tower would hold the block in memory."""
    monkeypatch.setattr(blocks, "CHUNK_DOCUMENTS", 7)
    read: list[str] = []
    of = TextsOfDocuments.of

    def noting(self: TextsOfDocuments, document: Document, row: int) -> Iterator[Document]:
        read.append(document.id)
        return of(self, document, row)

    monkeypatch.setattr(TextsOfDocuments, "of", noting)
    rows = 0
    for part in job_of(tmp_path, model, documents).parts(Block(0, 50)):
        rows += len(part.vectors)
        assert len(read) == rows
    assert rows == 50


Fails = Callable[[Block, int], bool]


class Scripted:
    """Writes row numbers as vectors, and fails where a function says so."""

    def __init__(self, folder: Path, fails: Fails) -> None:
        self._folder = folder
        self._fails = fails
        self.tries: list[tuple[int, int]] = []

    @contextmanager
    def started(self) -> Iterator[Run]:
        """As `in_threads`."""
        yield self.run

    def run(self, blocks: Sequence[Block], careful: bool) -> Iterator[Block]:
        """As `Run`."""
        for block in blocks:
            self.tries.append((block.start, block.stop))
            if self._fails(block, self.tries.count(self.tries[-1])):
                yield replace(block, fault="it fell over")
                continue
            skipped = {row for row, _ in block.skip}
            rows = [row for row in range(block.start, block.stop) if row not in skipped]
            vectors = np.array([[row, 0] for row in rows], np.float32).reshape(-1, 2)
            yield write_block(self._folder, block, [EncodedTexts({}, vectors)])


def encode(
    folder: Path, fails: Fails, count: int = 40, size: int = 16
) -> tuple[EncodedBlocks, Scripted, list[int]]:
    folder.mkdir(exist_ok=True)
    runner, done = Scripted(folder, fails), list[int]()
    return encode_blocks(runner.started(), plan_blocks(count, size), folder, 2, done.append, {}), runner, done


def holds(*rows: int) -> Fails:
    def fails(block: Block, tries: int) -> bool:
        skipped = {row for row, _ in block.skip}
        return any(block.start <= row < block.stop and row not in skipped for row in rows)

    return fails


def test_vectors_are_those_of_all_blocks_in_order(tmp_path: Path) -> None:
    found, _, done = encode(tmp_path, lambda block, tries: False)
    vectors = found.vectors()
    assert vectors.shape == (40, 2)
    assert vectors[0:100][:, 0].tolist() == list(range(40))
    assert vectors[15:18][:, 0].tolist() == [15, 16, 17]
    assert vectors[np.array([[39, 0], [20, 17]])][..., 0].tolist() == [[39, 0], [20, 17]]
    assert sum(done) == 40


def test_a_block_that_failed_once_is_done_whole(tmp_path: Path) -> None:
    found, runner, done = encode(tmp_path, lambda block, tries: block.start == 16 and tries == 1)
    assert (found.failures, found.poison, sum(done)) == (1, {}, 40)
    assert len(runner.tries) == 4


@pytest.mark.parametrize("rows", [(0,), (39,), (17, 18), (16, 31), tuple(range(32, 40))])
def test_poison_is_found_and_left_out(tmp_path: Path, rows: tuple[int, ...]) -> None:
    found, _, _ = encode(tmp_path, holds(*rows))
    assert found.poison == dict.fromkeys(rows, "it fell over")
    left = [row for row in range(40) if row not in rows]
    assert found.vectors()[0:100][:, 0].tolist() == left
    again, runner, done = encode(tmp_path, holds(*rows))
    assert (again.poison, again.resumed, runner.tries) == (found.poison, 3, [])
    assert sum(done) == 40


WHOLE = "0000000016-0000000032"


def test_a_document_is_not_blamed_for_one_death(tmp_path: Path) -> None:
    """Three deaths in a row of one block, none of them a document's."""
    found, _, _ = encode(tmp_path, lambda block, tries: block.name == WHOLE and tries <= 2)
    assert (found.poison, found.failures) == ({}, 2)


def test_documents_that_fail_only_together_end_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="documents 16 to 31 cannot be encoded together"):
        encode(tmp_path, lambda block, tries: block.name == WHOLE)


def test_a_model_that_fails_on_everything_is_not_searched_for_poison(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, lambda block, tries: True)
    with pytest.raises(BuildError, match=f"first {FIRST_FAILURES} shards failed.*it fell over"):
        encode_blocks(runner.started(), plan_blocks(1000, 2), tmp_path, 2, lambda _: None, {})
    assert len(runner.tries) == FIRST_FAILURES


def test_a_damaged_block_is_not_taken_for_done(tmp_path: Path) -> None:
    encode(tmp_path, lambda block, tries: False)
    (tmp_path / f"{WHOLE}.f32").write_bytes(b"other")
    (tmp_path / "0000000032-0000000040.json").write_text("{")
    found, runner, _ = encode(tmp_path, lambda block, tries: False)
    assert (found.resumed, len(runner.tries)) == (1, 2)


class Failing:
    """Makes no record of a text; a job and its encoder."""

    def __init__(self, reads: tuple[str, ...]) -> None:
        self.reads, self.dtype = reads, np.dtype("<u4")

    def open(self, model: Model, terms: TermTable, device: Device) -> "Failing":
        return self

    def encode(self, batch: Texts) -> Records:
        raise ValueError(f"something of {batch.texts[0].id!r} is not finite")


@pytest.mark.parametrize(("reads", "where"), [((TERMS,), ""), ((), "of the documents from 'toy/0' on, ")])
def test_records_that_cannot_be_made_say_which_and_what_to_do(
    reads: Any, where: str, learned_model: Path, documents: list[Document], tmp_path: Path
) -> None:
    model, jobs = Model.open(learned_model), {"learned_sparse": Failing(reads)}
    encoder = TextEncoder.open(model, model.preprocessor.terms, "cpu", jobs)
    with pytest.raises(BuildError) as caught:
        encode_texts(documents[:1], encoder, 1, tmp_path, lambda _: None, jobs)
    assert str(caught.value) == f"{where}something of 'toy/0' is not finite; export the learned impacts again"
    assert not list(tmp_path.iterdir())
