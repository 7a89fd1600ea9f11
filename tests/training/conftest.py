"""A small collection and trainers over it: tiny towers, some fifty documents, three queries each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from glow.evaluation import write_run
from glow.nn import TowerConfig, TwoTowers
from glow.records import Hit
from glow.text import Preprocessor, WordPieces
from glow.training.data import Collection, PairBatches, collection_hash, count_terms, read_collection
from glow.training.rerank import Candidates, read_candidates
from glow.training.run import Place, run
from glow.training.towers import TowerLoss, TrainConfig, Watch, assemble, pair_batches
from research.folders import read_records, write_folder

MakeConfig = Callable[..., TrainConfig]
MakePreprocessor = Callable[[TrainConfig], Preprocessor]
MakeTrainer = Callable[..., "Trial"]


@pytest.fixture(scope="session")
def collection_folder(tmp_path_factory: pytest.TempPathFactory, toy_corpus: Path) -> Path:
    """The toy corpus with a query of each title and two of each text's words."""
    folder = tmp_path_factory.mktemp("data") / "toy"
    documents = read_records(toy_corpus)
    queries, judged = [], {}
    for number, document in enumerate(documents):
        words = document["text"].split()
        for kind, text in (
            ("a", document["title"]),
            ("b", " ".join(words[2:6])),
            ("c", " ".join(words[-4:])),
        ):
            queries.append({"_id": f"{kind}{number}", "text": text})
            judged[f"{kind}{number}"] = [document["_id"]]
    write_folder(folder, documents, queries, {"train": judged, "dev": judged})
    return folder


@pytest.fixture(scope="session")
def toy_collection(collection_folder: Path) -> Collection:
    return read_collection(collection_folder, "train", TrainConfig(name="toy").field_schema)


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Path:
    """Random initial weights of 16 dimensions over the toy model's vocabulary."""
    return write_bert(tmp_path_factory.mktemp("bert"), toy_model / "vocab.txt")


def write_bert(folder: Path, vocabulary: Path, hidden: int = 16) -> Path:
    """Random weights in BERT's layout: two layers."""
    pieces = vocabulary.read_bytes()
    (folder / "vocab.txt").write_bytes(pieces)
    size, inner = len(pieces.splitlines()), 32
    shape = {"vocab_size": size, "hidden_size": hidden, "num_attention_heads": 2, "intermediate_size": inner}
    config = {**shape, "num_hidden_layers": 2, "layer_norm_eps": 1e-12}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    affine = {"embeddings.LayerNorm": (hidden,)}
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        for part in ("query", "key", "value"):
            affine[f"{layer}.attention.self.{part}"] = (hidden, hidden)
        affine[f"{layer}.attention.output.dense"] = (hidden, hidden)
        affine[f"{layer}.intermediate.dense"] = (inner, hidden)
        affine[f"{layer}.output.dense"] = (hidden, inner)
        affine |= {f"{layer}.attention.output.LayerNorm": (hidden,), f"{layer}.output.LayerNorm": (hidden,)}
    random = torch.Generator().manual_seed(0)
    tensors = {}
    for name, sizes in affine.items():
        middle = 1.0 if name.endswith("LayerNorm") else 0.0
        tensors[f"{name}.weight"] = middle + 0.1 * torch.randn(sizes, generator=random)
        tensors[f"{name}.bias"] = 0.1 * torch.randn(sizes[:1], generator=random)
    for name, rows in (("word", size), ("position", 512), ("token_type", 2)):
        tensors[f"embeddings.{name}_embeddings.weight"] = torch.randn(rows, hidden, generator=random)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture
def make_config() -> MakeConfig:
    """Makes a configuration of a short fp32 run, with changes by section."""

    def make(**changes: Any) -> TrainConfig:
        short = {"batch_size": 16, "epochs": 3, "learning_rate": 3e-3, "precision": "fp32"}
        options = {**short, **changes.pop("optimizer", {})}
        return TrainConfig.model_validate(
            {"name": "test", "optimizer": options, "checkpoint_steps": 4, **changes}
        )

    return make


@pytest.fixture
def make_preprocessor(toy_collection: Collection, toy_model: Path) -> MakePreprocessor:
    """Makes the preprocessor that a run of the configuration has."""

    def make(config: TrainConfig) -> Preprocessor:
        pieces = WordPieces(toy_model / "vocab.txt", config.weighting.unit)
        terms = count_terms([toy_collection], config.field_schema, pieces)
        return Preprocessor(pieces, config.field_schema, config.weighting, terms)

    return make


class Trial:
    """A run of tiny towers, without a checkpoint."""

    def __init__(
        self,
        config: TrainConfig,
        batches: PairBatches,
        towers: TwoTowers,
        folder: Path,
        watched: Callable[[TowerLoss], Watch] | None = None,  # makes what is watched
    ) -> None:
        self.batches, self.towers, self.folder = batches, towers, folder
        self.loss = TowerLoss(config, towers, batches)
        watch = watched(self.loss) if watched else None
        hashes = [collection_hash(each) for each in batches.collections]
        self.recipe = assemble(config, batches, self.loss, hashes, watch=watch)

    def run(self) -> list[float]:
        """Trains; the loss of each step of this call."""
        losses: list[float] = []
        run(self.recipe, Place(self.folder, device="cpu"), lambda progress: losses.append(progress.last))
        return losses


@pytest.fixture
def make_trainer(toy_collection: Collection, make_preprocessor: MakePreprocessor) -> MakeTrainer:
    """Makes a run of tiny towers over the toy collection."""

    def make(
        config: TrainConfig, run: Path, *, watch: bool = False, collection: Collection = toy_collection
    ) -> Trial:
        preprocessor = make_preprocessor(config)
        batches = pair_batches(config, [collection], preprocessor)
        torch.manual_seed(0)
        shape = {
            "vocabulary": preprocessor.pieces.size,
            "hidden": 16,
            "layers": 1,
            "heads": 2,
            "intermediate": 32,
        }
        towers = TwoTowers(
            TowerConfig(**{**shape, **config.towers.changes, "dropout": 0.1}), config.field_schema
        )

        def watched(loss: TowerLoss) -> Watch:
            return Watch([collection], preprocessor, config.watch, config.seed, loss)

        return Trial(config, batches, towers, run, watched if watch else None)

    return make


@pytest.fixture
def candidates(toy_collection: Collection, run_file: Path) -> Candidates:
    return read_candidates(run_file, toy_collection, 10)


@pytest.fixture(scope="session")
def run_file(toy_collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """First-stage hits: ten documents per query, the relevant one at a random rank; one query has none."""
    random = np.random.default_rng(0)
    ids = [document.id for document in toy_collection.documents]
    run = {}
    for number, identifier in enumerate(toy_collection.query_ids):
        relevant = next(iter(toy_collection.relevant[number]))
        rows = [row for row in random.permutation(len(ids)).tolist() if row != relevant][:9]
        rows.insert(int(random.integers(10)), relevant if number else rows[0] + 1)
        ranked = dict.fromkeys(ids[row % len(ids)] for row in rows)
        run[identifier] = [Hit(id_, 1.0 - place / 20) for place, id_ in enumerate(ranked)]
    path = tmp_path_factory.mktemp("runs") / "toy.trec"
    write_run(path, run, "toy")
    return path
