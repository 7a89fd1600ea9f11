"""Encoding with torch towers: as the towers say, in groups as at once, and as evaluation searches."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from glow.collection import read_documents
from glow.errors import ArtifactNotFoundError
from glow.evaluation.corpus_index import DenseOptions
from glow.evaluation.retrievers import DenseRetriever
from glow.evaluation.task import Corpus
from glow.nn import TowerConfig, TwoTowers
from glow.records import Document, Query
from glow.runtime import Model
from glow.text.preprocessor import pad
from glow.training.checkpoint import read_towers, save_checkpoint
from glow.training.encode import EncodedCorpus, EncodeOptions, Encoding, encode, open_source, vectors


@pytest.fixture(scope="module")
def documents(toy_corpus: Path, toy_model: Path) -> list[Document]:
    return list(read_documents(toy_corpus, Model.open(toy_model).preprocessor.schema.names))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "toy"
    model = Model.open(toy_model)
    save_checkpoint(folder, read_towers(model), model.preprocessor, {})
    return folder


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_batch_gives_what_single_texts_give(
    toy_model: Path, documents: list[Document], precision: str
) -> None:
    model = Model.open(toy_model)
    tower = read_towers(model).document
    sequences = [model.preprocessor.document(document) for document in documents]
    found = vectors(tower, sequences, model.preprocessor.pieces.pad_id, precision)
    assert found.dtype == np.float32
    assert found.shape == (len(documents), 32)
    alone = []
    for sequence in sequences:
        batch = pad([sequence], 0)
        arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
        with torch.no_grad():
            alone.append(tower(*map(torch.from_numpy, arrays))[0].numpy())
    np.testing.assert_allclose(found, np.stack(alone), atol=1e-5 if precision == "fp32" else 0.02)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)


def test_groups_of_like_length_keep_the_order_of_the_batch(
    toy_model: Path, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow.training.encode.GROUP_TEXTS", 3)
    model = Model.open(toy_model)
    tower, encoding = read_towers(model).document, Encoding(0, torch.device("cpu"), nullcontext)
    sequences = [model.preprocessor.document(document) for document in documents[:8]]
    with torch.no_grad():
        alone = torch.cat([encoding.run(tower, [sequence]) for sequence in sequences])
        torch.testing.assert_close(encode(encoding, tower, sequences), alone, atol=1e-6, rtol=0.0)


def test_a_tower_in_training_is_read_without_dropout_and_learns_on(toy_model: Path) -> None:
    model = Model.open(toy_model)
    own = model.preprocessor
    towers = TwoTowers(
        TowerConfig(vocabulary=own.pieces.size, hidden=16, layers=1, heads=2, intermediate=16, dropout=0.5),
        own.schema,
    ).train()
    sequences = [own.query("bees find home"), own.query("the moon")]
    first, second = (vectors(towers.query, sequences, own.pieces.pad_id) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert towers.query.training
    assert towers.query.dropout.training
    batch = pad(sequences, own.pieces.pad_id)
    with torch.autocast("cpu", torch.bfloat16):
        out = towers.query(*map(torch.from_numpy, (batch.ids, batch.mask, batch.field_ids, batch.weights)))
    out[:, 0].sum().backward()
    assert all(parameter.grad is not None for parameter in towers.query.layers.parameters())


def test_a_checkpoint_searches_as_its_model_and_as_evaluation(
    toy_model: Path,
    checkpoint: Path,
    toy_corpus: Path,
    documents: list[Document],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("glow.training.encode.CHUNK_DOCUMENTS", 8)
    monkeypatch.setattr("glow.training.encode.CHUNK_QUERIES", 2)
    documents = documents[:20]  # other term statistics than the model's own
    lines = toy_corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "corpus.jsonl").write_text("".join(lines[:20]), encoding="utf-8")
    model = Model.open(toy_model)
    queries = [Query("a", "bees find home"), Query("b", "what about whales"), Query("none", " \t")]
    expected = DenseRetriever(
        model, Corpus(tmp_path, model.preprocessor.schema.names), DenseOptions()
    ).search(queries, 7)
    # The toy towers hardly use weights, so other term statistics change only the sixth digit.
    for folder, tolerance in ((toy_model, 1e-7), (checkpoint, 1e-4)):
        source = open_source(folder, EncodeOptions(precision="fp32"))
        found = EncodedCorpus(source, documents).search(queries, 7)
        assert found["none"] == expected["none"] == []
        for query in ("a", "b"):
            assert [hit.document_id for hit in found[query]] == [hit.document_id for hit in expected[query]]
            np.testing.assert_allclose(
                [hit.score for hit in found[query]], [hit.score for hit in expected[query]], atol=tolerance
            )


def test_a_folder_that_is_neither_model_nor_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactNotFoundError, match=r"neither a model .* nor a checkpoint"):
        open_source(tmp_path, EncodeOptions())
