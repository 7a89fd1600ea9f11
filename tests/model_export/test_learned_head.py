"""A trained head of learned impacts becomes a further output of the document tower, and computes what torch computes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from glow.artifact import LEARNED_HEAD, TERMS_TOWER, learned_hash
from glow.cli import app
from glow.errors import ArtifactError, BuildError, FormatError, MismatchError
from glow.runtime import TERMS, VECTOR, Encoder, LearnedHead, Model
from glow.training import read_towers
from glow.training.checkpoint import TrainedImpacts, load_impacts, save_impacts
from glow_model_export.outputs import add_head
from tests.learned_head import add_untrained_head, untrained_head

TEXT = "the moon and the tides pull at the sea"


@pytest.fixture
def model(tmp_path: Path, toy_model: Path) -> Path:
    """A copy of the toy model."""
    return shutil.copytree(toy_model, tmp_path / "model")


def test_vectors_stay_and_the_hash_stays(model: Path, toy_model: Path, tmp_path: Path) -> None:
    add_untrained_head(model, tmp_path / "checkpoint")
    before, after = Model.open(toy_model), Model.open(model)
    assert before.hash == after.hash
    assert learned_hash(after.manifest.files) and learned_hash(before.manifest.files) is None
    sequences = [after.preprocessor.query(text) for text in ("bees", "x " * 40, "東京 café", TEXT)]
    encoder = Encoder(model / TERMS_TOWER, after.preprocessor.pieces.pad_id)
    vectors, terms = encoder.run_outputs(sequences, [VECTOR, TERMS])
    assert np.array_equal(vectors, before.encoder("document").run(sequences))
    assert terms.shape[0] == 4 and terms.shape[2] == 16


def test_a_build_computes_what_was_trained(model: Path, tmp_path: Path) -> None:
    """Directions of tokens and words, gains and impacts are those of torch."""
    add_untrained_head(model, tmp_path / "checkpoint")
    opened, head = Model.open(model), load_impacts(tmp_path / "checkpoint").head
    ready = LearnedHead.load(model / LEARNED_HEAD)
    sequence = opened.preprocessor.query(TEXT)
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
    terms = opened.preprocessor.terms
    frequencies = np.clip([terms.df(word) for word in words], 1, terms.documents)
    idf = np.log(1 + (terms.documents - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
    expected, raised = head.words(torch.from_numpy(vectors), torch.from_numpy(idf))
    np.testing.assert_allclose(directions, expected.detach().numpy(), atol=1e-5)
    every = torch.ones(tokens.shape[:2], dtype=torch.bool)
    impacts = head(expected, raised, torch.from_numpy(tokens), every) / head.bm25_weight
    nearest = (tokens[0] @ directions.T).max(0)
    found = gains * np.maximum(nearest - ready.cut, 0.0)
    np.testing.assert_allclose(found, impacts[:, 0].detach().numpy(), rtol=1e-4)


def test_what_is_no_head_of_this_model_is_refused(model: Path, tmp_path: Path) -> None:
    trained = TrainedImpacts(untrained_head(32), "0" * 64, {"bees": 1.0}, {})
    save_impacts(tmp_path / "checkpoint", trained)
    with pytest.raises(MismatchError, match="train a head for this one"):
        add_head(model, tmp_path / "checkpoint", tmp_path / "new")
    with pytest.raises(ArtifactError):
        add_head(model, tmp_path, tmp_path / "new")
    with pytest.raises((ArtifactError, FormatError)):
        load_impacts(model)
    assert not (tmp_path / "new").exists()


def test_the_command_writes_a_model_with_a_head_in_place_of_another(model: Path, tmp_path: Path) -> None:
    add_untrained_head(model, tmp_path / "one")
    first = Model.open(model)
    save_impacts(tmp_path / "two", TrainedImpacts(untrained_head(32, 1), first.hash, {"bees": 1.0}, {}))
    arguments = ["export-model", "--from-model", str(model), "--learned", str(tmp_path / "two"), "--out"]
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    second = Model.open(tmp_path / "new")
    changed = {name for name, record in second.manifest.files.items() if record != first.manifest.files[name]}
    assert changed == {TERMS_TOWER, LEARNED_HEAD} and second.hash == first.hash
    assert json.loads(done.stdout)["learned"] == learned_hash(second.manifest.files)
    for wrong in (["--quantize", "int8"], ["--token-size", "8"], ["--checkpoint", str(tmp_path / "one")]):
        assert CliRunner().invoke(app, [*arguments, str(tmp_path / "no"), *wrong]).exit_code == 2
    with pytest.raises(BuildError, match="exists already"):
        add_head(model, tmp_path / "two", tmp_path / "new")


def test_a_damaged_head_is_named(model: Path, tmp_path: Path) -> None:
    add_untrained_head(model, tmp_path / "checkpoint")
    path = model / LEARNED_HEAD
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FormatError, match=LEARNED_HEAD):
        LearnedHead.load(path)
    with pytest.raises(ArtifactError, match=LEARNED_HEAD):
        Model.open(model)
