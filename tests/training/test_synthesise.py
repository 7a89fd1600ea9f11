"""Pairs from documents alone, and training that goes on from what an earlier one made."""

import json
from pathlib import Path

import pytest
import torch

from glow.errors import MismatchError
from glow.runtime import Model
from glow.schema import FieldSchema
from glow.training.config import TrainConfig
from glow.training.data import read_collection
from glow.training.from_model import read_towers
from glow.training.synthesise import synthesise
from glow.training.train import _go_on

SCHEMA = FieldSchema.preset("glow-default")


def test_the_result_is_a_data_folder_that_training_reads(toy_corpus: Path, tmp_path: Path) -> None:
    pairs = synthesise(toy_corpus, tmp_path, SCHEMA)
    collection = read_collection(tmp_path, "train", SCHEMA)
    assert len(collection.pairs) == pairs >= len(collection.documents)
    for query, document in collection.pairs:
        texts = " ".join(text for values in collection.documents[document].fields.values() for text in values)
        assert " ".join(collection.queries[query].split()) in " ".join(texts.split())


def test_queries_are_what_others_say_first_then_sentences(tmp_path: Path) -> None:
    document = {
        "_id": "d",
        "title": "t",
        "clicked_queries": ["how do bees fly home"],
        "text": "Too short. Bees see the sun from far away. Bees smell the hive quite well. Yes.",
    }
    (tmp_path / "in.jsonl").write_text(json.dumps(document) + "\n", encoding="utf-8")
    synthesise(tmp_path / "in.jsonl", tmp_path / "out", SCHEMA)
    lines = (tmp_path / "out" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in lines] == [
        "how do bees fly home",
        "Bees see the sun from far away.",
        "Bees smell the hive quite well.",
    ]


def test_the_same_seed_gives_the_same_pairs(toy_corpus: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1)):
        synthesise(toy_corpus, tmp_path / name, SCHEMA, seed, max_queries=1)
    assert (tmp_path / "a" / "queries.jsonl").read_bytes() == (tmp_path / "b" / "queries.jsonl").read_bytes()


def test_training_goes_on_from_a_model(toy_model: Path) -> None:
    """`--init models/NAME`: the towers come back from ONNX, with the run's own options."""
    model = Model.open(toy_model)
    config = TrainConfig.model_validate(
        {"name": "x", "towers": {"init_layers": [0, 1], "weight_side": "row", "pooling": "cls"}}
    )
    found = read_towers(model)
    towers = _go_on(found, config, model.preprocessor.schema)
    assert towers.config.weight_side == "row"
    assert towers.config.pooling == "cls"
    assert torch.equal(towers.words.weight, found.words.weight)
    assert torch.equal(towers.document.layers[1].inner.weight, found.document.layers[1].inner.weight)


def test_towers_of_another_depth_are_refused(toy_model: Path) -> None:
    model = Model.open(toy_model)
    config = TrainConfig.model_validate({"name": "x", "towers": {"init_layers": [0, 1, 2]}})
    with pytest.raises(MismatchError, match="2 layers"):
        _go_on(read_towers(model), config, model.preprocessor.schema)
