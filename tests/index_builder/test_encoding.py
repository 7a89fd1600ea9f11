"""Texts are encoded as shards or a few at once, with the same vectors; what fails is tried again, then searched for the documents to blame."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glow_index_builder.encoding.shards as shards
from glow.collection import read_documents
from glow.errors import BuildError
from glow.index import Records, Texts
from glow.index.passages import TextsOfDocuments
from glow.index.stored_fields import DocumentStore, DocumentWriter
from glow.records import Document
from glow.runtime import TERMS, Device, Encoder, Model
from glow.text import TermTable
from glow_index_builder.encoding import encode_texts
from glow_index_builder.encoding.files import EncodedFiles, EncodedTexts, write_texts
from glow_index_builder.encoding.schedule import FIRST_FAILURES, EncodedShards, encode_shards
from glow_index_builder.encoding.shards import (
    Outcome,
    Run,
    Shard,
    ShardEncoder,
    ShardJob,
    in_threads,
    plan_shards,
    read_report,
    write_shard,
)
from glow_index_builder.encoding.text_encoder import EncodeError, TextEncoder


@pytest.fixture(scope="session")
def model(toy_model: Path) -> Model:
    return Model.open(toy_model)


@pytest.fixture(scope="session")
def documents(toy_corpus: Path, model: Model) -> list[Document]:
    return list(read_documents(toy_corpus, model.preprocessor.schema.names))


def job_of(folder: Path, model: Model, documents: Sequence[Document], threads: int = 1) -> ShardJob:
    folder.mkdir(exist_ok=True)
    with DocumentWriter(folder / "store") as writer:
        for document in documents:
            writer.add(document)
    model.preprocessor.terms.save(folder / "terms")
    (folder / "shards").mkdir()
    return ShardJob(model.folder, folder / "store", folder / "terms", None, folder / "shards", "cpu", threads)


def vectors_of(job: ShardJob, shard: Shard) -> Any:
    return np.fromfile(job.shards / f"{shard.name}.f32", "<f4").reshape(-1, 32)


def test_row_i_is_document_i(model: Model, documents: list[Document], tmp_path: Path) -> None:
    job, shard = job_of(tmp_path, model, documents), Shard(7, 30, skip=((9, "bad"),))
    report = ShardEncoder.open(job).encode(shard)
    kept = documents[7:9] + documents[10:30]
    assert report is not None
    assert report == read_report(job.shards, shard, 32)
    assert report.texts.ids == tuple(document.id for document in kept)
    assert (report.texts.rows, report.skipped) == (22, ((9, "bad"),))
    vectors = vectors_of(job, shard)
    for row, document in enumerate(kept):
        alone = model.encoder("document").encode([model.preprocessor.document(document)])[0]
        np.testing.assert_allclose(vectors[row], alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_any_number_of_threads_writes_the_same_shards(
    model: Model, documents: list[Document], tmp_path: Path
) -> None:
    found = []
    for threads in (1, 3):
        job = job_of(tmp_path / str(threads), model, documents, threads)
        with in_threads(job) as run:
            outcomes = list(run(plan_shards(50, 7), False))
        assert {outcome.shard.start for outcome in outcomes} == set(range(0, 50, 7))
        found.append({path.name: path.read_bytes() for path in job.shards.glob("*.f32")})
    assert found[0] == found[1]
    assert len(found[0]) == 8


def test_a_probe_leaves_nothing(model: Model, documents: list[Document], tmp_path: Path) -> None:
    job = job_of(tmp_path, model, documents)
    assert ShardEncoder.open(job).encode(Shard(0, 5, is_probe=True)) is None
    assert not list(job.shards.iterdir())


def test_documents_that_lose_words_are_counted_by_field(model: Model, tmp_path: Path) -> None:
    long = [
        Document("short", {"title": ("bees",)}),
        Document("title", {"title": ("bees " * 100,)}),
        Document("both", {"title": ("bees " * 100,), "text": ("owls " * 100,)}),
    ]
    report = ShardEncoder.open(job_of(tmp_path, model, long)).encode(Shard(0, 3))
    assert report is not None and report.texts.truncated == {"title": 2, "text": 1}


def test_long_documents_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CHUNK_CHARACTERS", 100)
    documents = [Document(str(n), {"text": ("x" * 40, "y" * 20)}) for n in range(5)]
    assert [len(chunk) for chunk in shards._chunks(documents)] == [2, 2, 1]


def test_no_more_than_a_chunk_is_read_before_it_is_encoded(
    model: Model, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading ahead of the tower would hold the shard in memory."""
    monkeypatch.setattr(shards, "CHUNK_DOCUMENTS", 7)
    encoder = ShardEncoder.open(job_of(tmp_path, model, documents))
    ids: list[str] = []
    rows = 0
    for part in encoder._parts(Shard(0, 50), ids):
        rows += len(part.vectors)
        assert len(ids) == rows
    assert rows == 50


class BrokenEncoder(Encoder):
    """A tower whose weights overflow for one document: the shipped towers cannot be made to."""

    def encode(self, sequences: object) -> object:  # type: ignore[override]
        """As the tower, but for row 3."""
        vectors = super().encode(sequences)  # type: ignore[arg-type]
        vectors[3, 0] = np.nan
        return vectors


def test_a_vector_that_is_not_finite_fails_the_shard_and_names_the_document(
    model: Model, documents: list[Document], tmp_path: Path
) -> None:
    job = job_of(tmp_path, model, documents)
    broken = BrokenEncoder(model.folder / "document.onnx")
    texts = TextEncoder(model.preprocessor, broken)
    encoder = ShardEncoder(texts, DocumentStore(job.store), TextsOfDocuments(), job.shards)
    with pytest.raises(EncodeError, match="vector of document 'toy/13' is not finite"):
        encoder.encode(Shard(10, 20))
    assert not list(job.shards.iterdir())


Fails = Callable[[Shard, int], bool]


class Scripted:
    """Writes row numbers as vectors, and fails where a function says so."""

    def __init__(self, folder: Path, fails: Fails) -> None:
        self._folder = folder
        self._fails = fails
        self.tries: list[Shard] = []

    @contextmanager
    def started(self) -> Iterator[Run]:
        """As `in_threads`."""
        yield self.run

    def run(self, shards: Sequence[Shard], careful: bool) -> Iterator[Outcome]:
        """As `Run`."""
        for shard in shards:
            self.tries.append(shard)
            if self._fails(shard, self.tries.count(shard)):
                yield Outcome(shard, fault="it fell over")
                continue
            skipped = {row for row, _ in shard.skip}
            rows = [row for row in range(shard.start, shard.stop) if row not in skipped]
            vectors = np.array([[row, 0] for row in rows], np.float32).reshape(-1, 2)
            given = (list(map(str, rows)), [EncodedTexts({}, vectors)])
            yield Outcome(shard, None if shard.is_probe else write_shard(self._folder, shard, *given))


def encode(
    folder: Path, fails: Fails, count: int = 40, size: int = 16
) -> tuple[EncodedShards, Scripted, list[int]]:
    folder.mkdir(exist_ok=True)
    runner, done = Scripted(folder, fails), list[int]()
    return encode_shards(runner.started(), plan_shards(count, size), folder, 2, done.append), runner, done


def holds(*rows: int) -> Fails:
    def fails(shard: Shard, tries: int) -> bool:
        skipped = {row for row, _ in shard.skip}
        return any(shard.start <= row < shard.stop and row not in skipped for row in rows)

    return fails


def test_vectors_are_those_of_all_shards_in_order(tmp_path: Path) -> None:
    found, _, done = encode(tmp_path, lambda shard, tries: False)
    vectors = found.files.vectors()
    assert vectors.shape == (40, 2)
    assert vectors[0:100][:, 0].tolist() == list(range(40))
    assert vectors[15:18][:, 0].tolist() == [15, 16, 17]
    assert vectors[np.array([[39, 0], [20, 17]])][..., 0].tolist() == [[39, 0], [20, 17]]
    assert sum(done) == 40


def test_a_shard_that_failed_once_is_done_whole(tmp_path: Path) -> None:
    found, runner, done = encode(tmp_path, lambda shard, tries: shard.start == 16 and tries == 1)
    assert (found.failures, found.poison, sum(done)) == (1, {}, 40)
    assert not any(shard.is_probe for shard in runner.tries)


@pytest.mark.parametrize("rows", [(0,), (39,), (17, 18), (16, 31), tuple(range(32, 40))])
def test_poison_is_found_and_left_out(tmp_path: Path, rows: tuple[int, ...]) -> None:
    found, _, _ = encode(tmp_path, holds(*rows))
    assert found.poison == dict.fromkeys(rows, "it fell over")
    left = [row for row in range(40) if row not in rows]
    assert found.files.vectors()[0:100][:, 0].tolist() == left
    again, runner, done = encode(tmp_path, holds(*rows))
    assert (again.poison, again.resumed, runner.tries) == (found.poison, 3, [])
    assert sum(done) == 40


def test_a_document_is_not_blamed_for_one_death(tmp_path: Path) -> None:
    """Three deaths in a row of one shard, none of them a document's."""
    found, _, _ = encode(
        tmp_path, lambda shard, tries: shard.start == 16 and tries <= 2 and not shard.is_probe
    )
    assert (found.poison, found.failures) == ({}, 2)


def test_documents_that_fail_only_together_end_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="documents 16 to 31 cannot be encoded together"):
        encode(tmp_path, lambda shard, tries: shard.start == 16 and not shard.is_probe)


def test_a_model_that_fails_on_everything_is_not_searched_for_poison(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, lambda shard, tries: True)
    with pytest.raises(BuildError, match=f"first {FIRST_FAILURES} shards failed.*it fell over"):
        encode_shards(runner.started(), plan_shards(1000, 2), tmp_path, 2, lambda _: None)
    assert len(runner.tries) == FIRST_FAILURES


def test_a_shard_of_other_documents_is_not_taken_for_done(tmp_path: Path) -> None:
    encode(tmp_path, lambda shard, tries: False)
    for name in ("0000000000-0000000016.json", "0000000016-0000000032.json"):
        path = tmp_path / name
        path.write_text(path.read_text().replace('"ids": ["', '"ids": ["x'))
    (tmp_path / "0000000032-0000000040.json").write_text("{")
    found, runner, _ = encode(tmp_path, lambda shard, tries: False)
    assert (found.resumed, len(runner.tries)) == (0, 3)


RECORD = np.dtype([("token", "<u4"), ("norm", "<f4")])


@dataclass(frozen=True)
class Job:
    """Makes a record of every token, or of every second text."""

    reads: tuple[str, ...]
    poison: str = ""
    dtype: Any = RECORD

    def open(self, model: Model, terms: TermTable, device: Device) -> "Job":
        """As `EncodeJob`."""
        return self

    def encode(self, batch: Texts) -> Records:
        """As `RowEncoder`."""
        found: list[tuple[int, float]] = []
        counts = []
        for place, (text, sequence) in enumerate(zip(batch.texts, batch.sequences, strict=True)):
            if text.id == self.poison:
                raise ValueError(f"something of {text.id!r} is not finite")
            own = [(int(each), float(batch.vectors[place, 0])) for each in sequence.ids]
            if self.reads:
                assert all(batch.outputs[name].shape[0] == len(batch.texts) for name in self.reads)
            elif place % 2:
                own = []
            found += own
            counts.append(len(own))
        return Records(np.array(found, RECORD), np.array(counts, np.int64))


def encoder_of(model: Model, jobs: dict[str, Job]) -> TextEncoder:
    return TextEncoder.open(model, model.preprocessor.terms, "cpu", jobs)


def all_of(found: Any, name: str) -> tuple[Any, Any]:
    blocks = list(found.records(name))
    return np.concatenate([each.records for each in blocks]), np.concatenate([each.counts for each in blocks])


def test_threads_and_chunks_change_nothing_and_records_stay_in_order(
    learned_model: Path, documents: list[Document], tmp_path: Path
) -> None:
    model = Model.open(learned_model)
    jobs = {"one": Job((TERMS,)), "other": Job(())}
    encoder, done = encoder_of(model, jobs), list[int]()
    found = []
    for threads in (1, 3):
        folder = tmp_path / str(threads)
        folder.mkdir()
        found.append(encode_texts(documents, encoder, threads, folder, done.append, jobs))
    assert sum(done) == 2 * len(documents)
    vectors = [each.vectors()[0:100] for each in found]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    sequences = [model.preprocessor.document(document) for document in documents]
    for name in jobs:
        (records, counts), (others, _) = (all_of(each, name) for each in found)
        assert records.tobytes() == others.tobytes()
        ends = np.cumsum(counts)
        for row, sequence in enumerate(sequences):
            own = records[ends[row] - counts[row] : ends[row]]
            assert own["token"].tolist() == (list(sequence.ids) if name == "one" or row % 32 % 2 == 0 else [])
            assert (own["norm"] == vectors[0][row, 0]).all()


def test_no_text_makes_no_record(toy_model: Path, tmp_path: Path) -> None:
    jobs = {"other": Job(())}
    found = encode_texts([], encoder_of(Model.open(toy_model), jobs), 2, tmp_path, lambda _: None, jobs)
    assert list(found.records("other")) == []
    assert found.vectors().shape == (0, 32)


@pytest.mark.parametrize(("reads", "where"), [((TERMS,), ""), ((), "of the documents from 'toy/32' on, ")])
def test_records_that_cannot_be_made_say_which_and_what_to_do(
    reads: Any, where: str, learned_model: Path, documents: list[Document], tmp_path: Path
) -> None:
    jobs = {"learned_sparse": Job(reads, poison="toy/40")}
    with pytest.raises(BuildError) as caught:
        encoder = encoder_of(Model.open(learned_model), jobs)
        encode_texts(documents, encoder, 1, tmp_path, lambda _: None, jobs)
    said = "something of 'toy/40' is not finite; export the learned impacts again"
    assert str(caught.value) == where + said
    assert not list(tmp_path.iterdir())


def test_what_no_job_made_has_no_records(tmp_path: Path) -> None:
    write_texts(tmp_path, "texts", [], iter(()))
    found = EncodedFiles(tmp_path, ["texts"], [0], 4, {})
    assert list(found.records("unknown")) == []
