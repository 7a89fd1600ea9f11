"""Training on MS MARCO's files: labelled pairs, hard negatives from disk, a killed run, the papers' configurations."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glow.errors import MismatchError
from glow.schema import FieldSchema
from glow.text import Preprocessor, Weighting, WordPieces
from glow.training.config import TrainConfig
from glow.training.data.dataset import PairBatches, count_terms
from glow.training.data.msmarco import labelled_pairs, read_msmarco
from glow.training.job import TrainInputs, train
from tests.training.msmarco_files import SCHEMA, write_folder

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path)


def test_a_killed_run_resumes_with_hard_negatives_read_anew(
    folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    config = TrainConfig.model_validate(
        {
            "name": "x",
            "fields": "bison-msmarco",
            "checkpoint_steps": 2,
            "towers": {"init_layers": [0]},
            "objective": {"hard_negatives": 1},
            "optimizer": {"batch_size": 2, "epochs": 5, "precision": "fp32"},
        }
    )
    inputs = TrainInputs([folder], "train", tmp_path / "out", bert_folder, bert_folder, device="cpu")

    def kill(progress: Any) -> None:
        if progress.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, inputs, on_progress=kill)
    steps: list[int] = []
    train(config, inputs, on_progress=lambda progress: steps.append(progress.step))
    assert steps == [3, 4, 5]
    with (folder / "msmarco-docs.tsv").open("ab") as file:
        file.write(b"D600\tu\tt\tb\n")
    with pytest.raises(MismatchError, match="other configuration or data"):
        train(config, inputs)


def test_labelled_pairs_are_positives_ten_times_and_each_negative_once(folder: Path) -> None:
    collection = read_msmarco(folder, "train", SCHEMA)
    rows = labelled_pairs(collection, seed=3)
    assert rows.dtype == np.int32
    counts = {
        tuple(row): int(count)
        for row, count in zip(*np.unique(rows, axis=0, return_counts=True), strict=True)
    }
    assert counts == {(0, 1, 1): 10, (1, 0, 1): 10, (0, 2, 0): 1, (1, 3, 0): 1, (1, 1, 0): 1, (1, 2, 0): 1}


def test_the_order_of_labelled_pairs_is_of_the_seed_and_epoch_alone(folder: Path) -> None:
    collection = read_msmarco(folder, "train", SCHEMA)
    rows = labelled_pairs(collection, seed=3)
    assert np.array_equal(rows, labelled_pairs(read_msmarco(folder, "train", SCHEMA), seed=3))
    for other in (labelled_pairs(collection, seed=4), labelled_pairs(collection, seed=3, epoch=1)):
        assert not np.array_equal(rows, other)
        assert sorted(rows.tolist()) == sorted(other.tolist())


def test_labelled_pairs_need_no_negatives(folder: Path) -> None:
    full = read_msmarco(folder, "train", SCHEMA)
    bare = replace(full, negatives=None)
    assert labelled_pairs(bare, seed=1, oversampling=2)[:, 2].tolist() == [1] * 4


def test_training_counts_terms_and_draws_batches_with_hard_negatives_from_disk(
    folder: Path, toy_model: Path
) -> None:
    collection = read_msmarco(folder, "train", SCHEMA)
    assert collection.negatives is not None
    pieces = WordPieces(toy_model / "vocab.txt")
    terms = count_terms([collection], SCHEMA, pieces)
    assert terms.documents == 7
    preprocessor = Preprocessor(pieces, SCHEMA, Weighting(), terms)
    batches = PairBatches([collection], preprocessor, 2, 5, hard_negatives=1)
    (batch,) = batches.epoch(0)
    for row, query in enumerate(batch.queries):
        assert batch.documents[row] in collection.relevant[query]
        assert batch.documents[2 + row] in collection.negatives[query]
        assert len(batches.documents[0][batch.documents[row]].ids) > 3


@pytest.mark.parametrize(
    ("name", "fields"), [("bison", ("url", "title")), ("glow", ("url", "title", "text"))]
)
def test_the_papers_configurations_are_valid_and_read_their_fields(
    name: str, fields: tuple[str, ...]
) -> None:
    config = TrainConfig.load_toml(ROOT / "configs" / f"msmarco-doc-{name}.toml")
    schema = FieldSchema.preset(config.fields)
    assert schema.names == fields
    assert schema.query_tokens == 20
    assert [spec.tokens for spec in schema.fields] == [30, 30, 128][: len(fields)]
    assert (config.objective.kind, config.towers.weight_side) == ("bce", "row")
