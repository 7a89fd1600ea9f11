"""Pre-training as a job: text in order, masks, what `train --init` makes of it, and the study of its objectives."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from typer.testing import CliRunner

from glow.cli import app
from glow.errors import ConfigError, InputError, RecordError
from glow.nn import SentenceConfig, SentenceEncoder, TwoTowers, bert_config, init_from_bert
from glow.options import merged
from glow.schema import FieldSchema
from glow.text import WordPieces
from glow.training import Given, TrainConfig, train
from glow.training.checkpoint import load_pretrained
from glow.training.pretraining import (
    PieceStream,
    PretrainConfig,
    Samples,
    initial_pretrainer,
    make_stream,
    mask_pieces,
    read_texts,
)
from research.folders import read_records, write_lines
from research.pretraining import app as study

ROOT = Path(__file__).parents[2]


SMALL = {
    "name": "toy",
    "checkpoint_steps": 2,
    "pretraining": {"length": 16, "sequences": 4, "specials": 2},
    "encoder": {"init_layers": [0, 1], "dropout": 0.1},
    "optimizer": {"batch_tokens": 128, "steps": 5, "learning_rate": 3e-3, "precision": "fp32"},
}


def config(**changes: Any) -> PretrainConfig:
    return PretrainConfig.model_validate(merged(SMALL, changes))


@pytest.fixture
def given(toy_corpus: Path, bert_folder: Path, tmp_path: Path) -> Given:
    return Given(corpora=[toy_corpus], out=tmp_path / "encoder", init=bert_folder, device="cpu")


def test_texts_come_in_order_from_documents_and_from_plain_files(tmp_path: Path) -> None:
    """What people asked is left out, and so are addresses."""
    documents, plain = tmp_path / "a.jsonl", tmp_path / "b.txt"
    bees = {
        "_id": "1",
        "title": "Bees",
        "text": "They fly.",
        "url": "http://x",
        "clicked_queries": ["do bees fly"],
    }
    owls = {"_id": "2", "text": "Owls.", "anchor": ["owl", "bird"]}
    documents.write_text(json.dumps(bees) + "\n" + json.dumps(owls) + "\n", encoding="utf-8")
    plain.write_text("One line\nand its second.\n\n\nAnother paragraph.", encoding="utf-8")
    texts = ["Bees. They fly.", "owl. bird. Owls.", "One line and its second.", "Another paragraph."]
    assert list(read_texts([documents, plain])) == texts
    documents.write_text("{not json\n", encoding="utf-8")
    with pytest.raises(RecordError, match=r"a\.jsonl line 1"):
        list(read_texts([documents]))


def test_a_stream_is_the_texts_pieces_and_is_kept(tmp_path: Path, bert_folder: Path) -> None:
    plain, pieces = tmp_path / "b.txt", WordPieces(bert_folder / "vocab.txt")
    plain.write_text("the bees\n\nthe owls", encoding="utf-8")
    stream = make_stream([plain], pieces, tmp_path / "run", 4)
    words = [word for text in ("the bees", "the owls") for word in pieces.words(text)]
    numbers = [number for word in words for number in pieces.pieces(word)]
    assert [number for number in stream.pieces.tolist() if number != pieces.sep_id] == numbers
    (path,) = (tmp_path / "run").glob("pieces-*.i32")
    before = path.stat().st_mtime_ns
    assert make_stream([plain], pieces, tmp_path / "run", 4).digest == stream.digest
    assert path.stat().st_mtime_ns == before
    with pytest.raises(InputError, match="cannot read"):
        make_stream([tmp_path / "none.txt"], pieces, tmp_path / "run", 4)
    with pytest.raises(InputError, match="one sample takes 4,000"):
        make_stream([plain], pieces, tmp_path / "run", 4000)


@pytest.fixture
def samples(tmp_path: Path, bert_folder: Path) -> Samples:
    numbers = np.arange(1000, dtype=np.int32) % 90 + 5
    numbers.tofile(tmp_path / "stream.i32")
    sizes = {"vocabulary": 100, "hidden": 4, "heads": 2, "layers": 1, "intermediate": 4}
    shape = SentenceConfig(**sizes, specials=2, positions=64)
    pieces = WordPieces(bert_folder / "vocab.txt")
    return Samples(config(), PieceStream(tmp_path / "stream.i32", "x"), shape, pieces)


def test_a_pass_reads_everything_once_in_contiguous_samples(samples: Samples) -> None:
    """64 tokens per sample, 15 samples in 1,000 tokens; two per step."""
    assert samples.per_pass == 15
    seen = []
    for step in range(8):
        batch = samples.batch(step, 0, 1)
        assert batch.ids.shape == (8, 16) and batch.sequences == 4
        for sample in batch.ids.reshape(2, 64):
            steps = np.diff(sample.numpy()) % 90
            assert (steps == 1).all()  # in the text's order, also from one sequence to the next
            seen.append(int(sample[0]))
    first, again = samples.batch(3, 0, 1), samples.batch(3, 0, 1)
    assert torch.equal(first.masked, again.masked) and first.offset == again.offset
    assert len({(value - seen[0]) % 90 for value in seen[:15]}) > 10
    passes = [[int(samples._sample(turn * 15 + place)[0, 0]) for place in range(15)] for turn in (0, 1)]
    orders = [[(value - first[0]) % 90 for value in first] for first in passes]
    assert orders[0] != orders[1]  # each pass in another order
    # Of two processes each has its own half.
    halves = [samples.batch(0, process, 2).ids for process in (0, 1)]
    assert torch.equal(torch.cat(halves), torch.cat([samples.batch(step, 0, 1).ids for step in (0, 1)]))


def test_masks_are_of_fifteen_in_a_hundred_and_never_of_special_pieces() -> None:
    ids = np.random.default_rng(0).integers(5, 1000, (200, 64))
    special = np.zeros_like(ids, bool)
    special[:, 0] = True
    read, targets = mask_pieces(ids, special, 0.15, 4, 1000, np.random.default_rng(1))
    assert targets.sum() == pytest.approx(0.15 * 200 * 63, abs=1.0) and not targets[:, 0].any()
    masked, same = (read[targets] == 4).mean(), (read[targets] == ids[targets]).mean()
    assert masked == pytest.approx(0.8, abs=0.03) and same == pytest.approx(0.1, abs=0.03)
    assert (read[~targets] == ids[~targets]).all()


def test_towers_start_from_the_encoder(given: Given, collection_folder: Path, tmp_path: Path) -> None:
    """`train --init`: both towers read what the encoder read, [CLS] as its first special token, words behind it."""
    train(config(), given)
    trained = load_pretrained(given.out)
    schema = FieldSchema.preset("glow-default")
    towers = TwoTowers(bert_config(given.out, weight_form="plain"), schema)
    init_from_bert(towers, given.out, (0, 1))
    pieces = trained.pieces
    ids = [number for word in pieces.words("the bees find their home") for number in pieces.pieces(word)]
    batch = torch.tensor([[pieces.cls_id, *ids]])
    ones = torch.ones_like(batch)
    states = towers.eval().document.states(batch, ones, torch.zeros_like(batch), ones.float())
    alone = SentenceEncoder(trained.model.config.model_copy(update={"specials": 1, "positions": 511}))
    encoder = trained.model.encoder
    alone.words, alone.layers, alone.embedding_norm = encoder.words, encoder.layers, encoder.embedding_norm
    alone.segment = encoder.segment
    with torch.no_grad():
        alone.specials.weight.copy_(encoder.specials.weight[:1])
        alone.positions.weight.copy_(encoder.positions_of_one()[:511])
    assert torch.allclose(states, alone.eval()(batch[:, 1:], ones[:, 1:].bool()), atol=1e-5)
    optimizer = {"batch_size": 8, "max_steps": 1, "precision": "fp32"}
    made = TrainConfig.model_validate(
        {"name": "on", "towers": {"init_layers": [0, 1]}, "optimizer": optimizer}
    )
    towers_given = Given(data=[collection_folder], out=tmp_path / "towers", init=given.out, device="cpu")
    assert train(made, towers_given)["steps"] == 1


def test_pre_training_goes_on_from_a_checkpoint(given: Given) -> None:
    train(config(), given)
    first = load_pretrained(given.out).model
    again = initial_pretrainer(config(), given.out, load_pretrained(given.out).pieces.cls_id)
    assert torch.equal(first.encoder.layers[1].inner.weight, again.encoder.layers[1].inner.weight)
    assert first.config.positions == again.config.positions


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pretraining": {"length": 600}}, "exceed"),
        ({"encoder": {"init_layers": [0, 9]}}, "no encoder.layer.9"),
        ({"pretraining": {"sequences": 1}}, "no neighbors"),
        ({"encoder": {"init": "none", "train_words": False}}, "must be trained"),
    ],
)
def test_what_does_not_fit_is_refused(given: Given, changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValidationError), match=message):
        train(config(**changes), given)


def test_the_command_overrides_and_needs_text(toy_corpus: Path, bert_folder: Path, tmp_path: Path) -> None:
    call = ["pretrain", "--config", str(ROOT / "configs" / "cross-thought.toml"), "--init", str(bert_folder)]
    call += ["--out", str(tmp_path / "out"), "--device", "cpu", "--steps", "1"]
    for corpus, said in (([], "give --corpus"), (["--corpus", str(toy_corpus)], "encoder.layer.4")):
        refused = CliRunner().invoke(app, [*call, *corpus])
        assert refused.exit_code == ConfigError.exit_code and said in refused.output


def test_the_study_measures_a_run_once_and_tables_it(
    collection_folder: Path, bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("research.pretraining.minilm_folder", lambda: bert_folder)  # its small vocabulary
    shutil.copytree(collection_folder, tmp_path / "toy")
    texts = read_records(tmp_path / "toy" / "corpus.jsonl")
    # One sample of 2,048 tokens takes more text than the toy collection has.
    longer = [text | {"text": " ".join([text["text"]] * 4)} for text in texts]
    write_lines(tmp_path / "toy" / "corpus.jsonl", map(json.dumps, longer))
    results = tmp_path / "results.jsonl"
    call = ["run", "--data", str(tmp_path / "toy"), "--out", str(results), "--work", str(tmp_path / "work")]
    call += "--seeds 0 --tokens 4096 --steps 1 --variants none,cross-thought-1".split()
    for _ in range(2):  # what stands there is not made again
        done = CliRunner().invoke(study, call)
        assert done.exit_code == 0, done.output
        rows = read_records(results)
        assert [row["variant"] for row in rows] == ["none", "cross-thought-1"]
    assert set(rows[1]["unsupervised"]) == {"mean", "cls", "specials", "logits", "shares"}
    assert set(rows[1]["tuned"]) == {"mean"} and 0.0 < rows[1]["entropy"] <= 1.0
    table = CliRunner().invoke(study, ["report", "--results", str(results)])
    assert table.exit_code == 0 and "| cross-thought-1 | 1 |" in table.output
