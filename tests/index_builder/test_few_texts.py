"""A few texts are encoded as a shard of them is, whatever the threads, and components' records stay with their texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.collection import read_documents
from glow.errors import BuildError
from glow.index import Records, Texts
from glow.records import Document
from glow.runtime import TERMS, Device, Model
from glow.text import TermTable
from glow_index_builder.encoding import TextEncoder, encode_texts
from glow_index_builder.encoding.files import EncodedFiles, write_texts

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


@pytest.fixture(scope="module")
def documents(toy_corpus: Path, toy_model: Path) -> list[Document]:
    model = Model.open(toy_model)
    return list(read_documents(toy_corpus, model.preprocessor.schema.names))


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


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        ((TERMS,), "something of 'toy/40' is not finite; export the learned impacts again"),
        (
            (),
            "of the documents from 'toy/32' on, something of 'toy/40' is not finite; export the learned impacts again",
        ),
    ],
)
def test_records_that_cannot_be_made_say_which_and_what_to_do(
    reads: Any, message: str, learned_model: Path, documents: list[Document], tmp_path: Path
) -> None:
    jobs = {"learned_sparse": Job(reads, poison="toy/40")}
    with pytest.raises(BuildError) as caught:
        encode_texts(
            documents, encoder_of(Model.open(learned_model), jobs), 1, tmp_path, lambda _: None, jobs
        )
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())


def test_what_no_job_made_has_no_records(tmp_path: Path) -> None:
    def parts() -> Iterator[Any]:
        return iter(())

    ids: Sequence[str] = []
    write_texts(tmp_path, "texts", ids, parts())
    found = EncodedFiles(tmp_path, ["texts"], [0], 4, {})
    assert list(found.records("unknown")) == []
