"""A whole small run: it learns, resumes to the same weights, and refuses another run's state."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from glow.errors import ConfigError, InputError, MismatchError
from glow.nn import TowerConfig, TwoTowers
from glow.schema import FieldSchema
from glow.text import Preprocessor, WordPieces
from glow.training.checkpoint import load_checkpoint, save_checkpoint
from glow.training.config import TrainConfig
from glow.training.data import PairBatches, count_terms, read_collection
from glow.training.loop import Trainer

SCHEMA = FieldSchema.preset("glow-default")


@pytest.fixture(scope="module")
def collection_folder(tmp_path_factory: pytest.TempPathFactory, toy_corpus: Path) -> Path:
    """The toy corpus with a query of each title and one of each text's words."""
    folder = tmp_path_factory.mktemp("data") / "toy"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(toy_corpus.read_bytes())
    queries, qrels = [], ["query-id\tcorpus-id\tscore"]
    for number, line in enumerate(toy_corpus.read_text(encoding="utf-8").splitlines()):
        document = json.loads(line)
        words = document["text"].split()
        for kind, text in (
            ("a", document["title"]),
            ("b", " ".join(words[2:6])),
            ("c", " ".join(words[-4:])),
        ):
            queries.append(json.dumps({"_id": f"{kind}{number}", "text": text}))
            qrels.append(f"{kind}{number}\t{document['_id']}\t1")
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n", encoding="utf-8")
    (folder / "qrels" / "train.tsv").write_text("\n".join(qrels) + "\n", encoding="utf-8")
    return folder


def config(**optimiser: object) -> TrainConfig:
    options = {"batch_size": 16, "epochs": 3, "learning_rate": 3e-3, "precision": "fp32", **optimiser}
    return TrainConfig.model_validate({"name": "test", "optimiser": options, "checkpoint_steps": 4})


def trainer(options: TrainConfig, data: Path, model: Path, run: Path) -> Trainer:
    collection = read_collection(data, "train", SCHEMA)
    pieces = WordPieces(model / "vocab.txt")
    terms = count_terms([collection], SCHEMA, pieces)
    preprocessor = Preprocessor(pieces, SCHEMA, options.weighting, terms)
    batches = PairBatches([collection], preprocessor, options.optimiser.batch_size, options.seed)
    torch.manual_seed(0)
    shape = TowerConfig(vocabulary=pieces.size, hidden=16, layers=1, heads=2, intermediate=32, dropout=0.1)
    return Trainer(options, TwoTowers(shape, SCHEMA), batches, run)


@pytest.mark.parametrize("kind", ["softmax", "bce"])
def test_a_run_learns(kind: str, collection_folder: Path, toy_model: Path, tmp_path: Path) -> None:
    options = config(epochs=8).model_copy(
        update={"objective": config().objective.model_copy(update={"kind": kind, "scale": 5.0})}
    )
    losses = trainer(options, collection_folder, toy_model, tmp_path).run()
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])


def test_a_killed_run_resumes_to_the_same_weights(
    collection_folder: Path, toy_model: Path, tmp_path: Path
) -> None:
    whole = trainer(config(), collection_folder, toy_model, tmp_path / "whole")
    whole.run()
    first = trainer(config(), collection_folder, toy_model, tmp_path / "cut")

    class Killed(Exception):
        pass

    def kill(progress: object) -> None:
        if progress.step == 14:  # type: ignore[attr-defined]
            raise Killed

    first.on_progress = kill
    with pytest.raises(Killed):
        first.run()
    second = trainer(config(), collection_folder, toy_model, tmp_path / "cut")
    losses = second.run()
    assert len(losses) == second.steps - 12  # the last state was kept after step 12
    for (name, expected), (_, found) in zip(
        whole.towers.named_parameters(), second.towers.named_parameters(), strict=True
    ):
        assert torch.equal(expected, found), name


def test_the_state_of_another_run_is_refused(
    collection_folder: Path, toy_model: Path, tmp_path: Path
) -> None:
    trainer(config(max_steps=4), collection_folder, toy_model, tmp_path).run()
    other = trainer(config(max_steps=4, learning_rate=1e-3), collection_folder, toy_model, tmp_path)
    with pytest.raises(MismatchError, match="other configuration or data"):
        other.run()


def test_batches_depend_on_seed_and_epoch_alone(
    collection_folder: Path, toy_model: Path, tmp_path: Path
) -> None:
    batches = trainer(config(), collection_folder, toy_model, tmp_path).batches
    first, again, other = ([batch.queries.tolist() for batch in batches.epoch(n)] for n in (0, 0, 1))
    assert first == again != other
    assert len(first) == batches.steps_per_epoch


def test_equal_texts_and_judged_pairs_count_as_relevant(
    collection_folder: Path, toy_model: Path, tmp_path: Path
) -> None:
    batches = trainer(config(), collection_folder, toy_model, tmp_path).batches
    for batch in batches.epoch(0):
        same = batch.documents[:, None] == batch.documents[None, :]
        assert (batch.relevant >= same).all()
        assert not batch.relevant.all()


def test_a_checkpoint_comes_back_as_it_was(collection_folder: Path, toy_model: Path, tmp_path: Path) -> None:
    run = trainer(config(max_steps=2), collection_folder, toy_model, tmp_path / "run")
    run.run()
    pieces = WordPieces(toy_model / "vocab.txt")
    terms = count_terms(run.batches.collections, SCHEMA, pieces)
    preprocessor = Preprocessor(pieces, SCHEMA, run.config.weighting, terms)
    save_checkpoint(tmp_path / "ckpt", run.towers, preprocessor, {"steps": 2})
    loaded = load_checkpoint(tmp_path / "ckpt")
    assert loaded.report == {"steps": 2}
    assert loaded.towers.query.words is loaded.towers.document.words
    expected, found = run.towers.state_dict(), loaded.towers.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_split_that_judges_nothing_is_refused(collection_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"dev\.tsv"):
        read_collection(collection_folder, "dev", SCHEMA)


def test_all_faults_of_a_configuration_are_named_together(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        'name = "x"\nfields = "nowhere"\nspeed = 3\n[optimiser]\nbatch_size = 0\n', encoding="utf-8"
    )
    with pytest.raises(ConfigError) as caught:
        TrainConfig.read(path)
    assert "speed" in str(caught.value)
    assert "optimiser.batch_size" in str(caught.value)


def test_shipped_configurations_are_valid() -> None:
    files = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))
    assert files
    for file in files:
        assert TrainConfig.read(file).name == file.stem
