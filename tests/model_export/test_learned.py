"""A head added to a model: the same vectors, directions beside them, and refusals that change nothing."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from glow.artifact import LEARNED_HEAD, TERMS_TOWER, learned_hash, read_manifest
from glow.errors import ArtifactError, FormatError, MismatchError
from glow.runtime import TERMS, VECTOR, Encoder, LearnedHead, Model
from glow.training import read_towers
from glow.training.impacts import TrainedImpacts, load_impacts, save_impacts
from glow_model_export.learned import add_learned
from tests.learned_head import add_untrained_head, untrained_head

TEXTS = ["bees find the way home", "salt", "the moon and the tides pull at the sea"]


@pytest.fixture
def model(tmp_path: Path, toy_model: Path) -> Path:
    """A copy of the toy model."""
    shutil.copytree(toy_model, tmp_path / "model")
    return tmp_path / "model"


def test_vectors_stay_and_the_hash_stays(model: Path, toy_model: Path, tmp_path: Path) -> None:
    add_untrained_head(model, tmp_path / "checkpoint")
    before, after = Model.open(toy_model), Model.open(model)
    assert before.hash == after.hash
    assert learned_hash(after.manifest.files) and learned_hash(before.manifest.files) is None
    sequences = [after.preprocessor.query(text) for text in TEXTS]
    encoder = Encoder(model / TERMS_TOWER, after.preprocessor.pieces.pad_id)
    vectors, terms = encoder.run_outputs(sequences, [VECTOR, TERMS])
    assert np.array_equal(vectors, before.encoder("document").run(sequences))
    assert terms.shape[0] == 3 and terms.shape[2] == 16


def test_a_build_computes_what_was_trained(model: Path, tmp_path: Path) -> None:
    """Directions of tokens and words, gains and impacts are those of torch."""
    add_untrained_head(model, tmp_path / "checkpoint")
    opened, head = Model.open(model), load_impacts(tmp_path / "checkpoint").head
    ready = LearnedHead.load(model / LEARNED_HEAD)
    sequence = opened.preprocessor.query(TEXTS[2])
    states = read_towers(opened).document.states(
        torch.from_numpy(sequence.ids)[None], torch.ones(1, len(sequence), dtype=torch.long),
        torch.from_numpy(sequence.field_ids)[None], torch.from_numpy(sequence.weights)[None],
    )  # fmt: skip
    encoder = Encoder(model / TERMS_TOWER, opened.preprocessor.pieces.pad_id)
    (tokens,) = encoder.run_outputs([sequence], [TERMS])
    np.testing.assert_allclose(tokens, head.tokens(states).detach().numpy(), atol=2e-5)
    words = ["bees", "tides", "unheard"]
    directions, gains = ready.directions(words, opened.preprocessor, opened.encoder("query"))
    vectors = opened.encoder("query").encode([opened.preprocessor.query(word) for word in words])
    idf = [_idf(opened, word) for word in words]
    expected, raised = head.words(torch.from_numpy(vectors), torch.tensor(idf))
    np.testing.assert_allclose(directions, expected.detach().numpy(), atol=1e-5)
    every = torch.ones(tokens.shape[:2], dtype=torch.bool)
    impacts = head(expected, raised, torch.from_numpy(tokens), every) / head.bm25_weight
    nearest = (tokens[0] @ directions.T).max(0)
    found = gains * np.maximum(nearest - ready.cut, 0.0)
    np.testing.assert_allclose(found, impacts[:, 0].detach().numpy(), rtol=1e-4)


def _idf(model: Model, word: str) -> float:
    terms = model.preprocessor.terms
    df = min(max(terms.df(word), 1), terms.documents)
    return float(np.log(1 + (terms.documents - df + 0.5) / (df + 0.5)))


def test_a_head_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    trained = TrainedImpacts(untrained_head(32), "0" * 64, {"bees": 1.0}, {})
    save_impacts(tmp_path / "checkpoint", trained)
    before = {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()}
    with pytest.raises(MismatchError, match="train a head for this one"):
        add_learned(model, tmp_path / "checkpoint")
    assert {path.name: path.read_bytes() for path in model.iterdir() if path.is_file()} == before


def test_what_is_no_checkpoint_of_a_head_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        add_learned(model, tmp_path)
    with pytest.raises((ArtifactError, FormatError)):
        load_impacts(model)


def test_a_head_is_replaced_whole(model: Path, tmp_path: Path) -> None:
    add_untrained_head(model, tmp_path / "one")
    first = learned_hash(read_manifest(model, "model").files)
    add_untrained_head(model, tmp_path / "other", seed=1)
    assert learned_hash(Model.open(model).manifest.files) != first


def test_a_damaged_head_is_named(model: Path, tmp_path: Path) -> None:
    add_untrained_head(model, tmp_path / "checkpoint")
    path = model / LEARNED_HEAD
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FormatError, match=LEARNED_HEAD):
        LearnedHead.load(path)
    with pytest.raises(ArtifactError, match=LEARNED_HEAD):
        Model.open(model)
