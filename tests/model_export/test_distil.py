"""`glow distil`: documents read as before, queries by few layers that learn what the whole says; stopped calls go on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from typer.testing import CliRunner

from glow.artifact import file_sha256
from glow.cli import app
from glow.runtime import Model
from glow.training import QueryTexts, read_towers
from glow_model_export import distil
from glow_model_export.imported import QueriesAbout, write_queries_file
from tests.model_export.test_import_model import TEXTS, imported, run, save, trained_tokenizer, vectors

WORDS = "bees find their way home by the sun and dance honey fox jumps over lazy dog quick brown".split()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents of a title and a sentence."""
    random = np.random.default_rng(0)
    lines = []
    for number in range(120):
        title, text = (" ".join(random.choice(WORDS, count)) for count in (4, 12))
        lines.append(json.dumps({"_id": f"d{number}", "title": title, "text": f"{text}."}))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "bees dance"}\n', encoding="utf-8")
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq\td3\t1\n", encoding="utf-8")
    return tmp_path / "corpus.jsonl"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("bert"), "bert", trained_tokenizer("uncased"), "mean")


def call(*arguments: object) -> Any:
    fixed = ("distil", "--hours", "0.0003", "--device", "cpu", "--threads", "1")
    return CliRunner().invoke(app, [*fixed, *(str(each) for each in arguments)])


def test_documents_keep_the_encoder_and_queries_learn_it_with_one_layer(
    encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("why do bees dance\n\nthe lazy fox\n", encoding="utf-8")
    more = ("--layers", "1", "--texts", texts, "--parity-data", corpus.parent)
    done = call(encoder, "--input", corpus, "--out", tmp_path / "fast", *more)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    fast, whole = Model.open(tmp_path / "fast"), imported(encoder, tmp_path / "whole")
    assert np.abs(vectors(fast, TEXTS) - vectors(whole, TEXTS)).max() < 1e-5
    assert np.abs(vectors(fast, TEXTS, "query") - vectors(whole, TEXTS, "query")).max() > 1e-3
    shape = json.loads((tmp_path / "fast" / "towers.json").read_bytes())
    assert (shape["layers"], shape["document_layers"]) == (1, 2)
    assert report["layers"] == [1] and report["training"]["texts"] > 120 > report["training"]["held_out"] > 0
    for measured in ("fast", "whole"):
        assert set(report["retrieval"][measured]) == {"RR@10", "nDCG@10", "ms_a_query"}
    assert not (tmp_path / "fast.distilling").exists()
    rows = json.loads((tmp_path / "fast" / "report.json").read_bytes())["training"]["distilled"]
    assert rows["final_loss"] < 10.0  # ten times a mean distance, which starts near 1


def test_a_fast_query_tower_keeps_relative_positions(corpus: Path, tmp_path: Path) -> None:
    encoder = save(tmp_path / "mpnet", "mpnet", trained_tokenizer("bpe"), "mean")
    more = ("--layers", "0,1", "--query-tokens", "16")
    done = call("--hours", "0.00001", encoder, "--input", corpus, "--out", tmp_path / "fast", *more)
    assert done.exit_code == 0, done.output
    fast = read_towers(Model.open(tmp_path / "fast"))
    whole = read_towers(imported(encoder, tmp_path / "whole"))
    kept, every = fast.document.distances, whole.document.distances
    assert kept is not None and every is not None and fast.query.distances is not None
    assert torch.equal(kept.weight, every.weight) and kept.weight.shape == (127, 4)
    # Shorter texts read the middle of the table: row 15 is of distance 0.
    assert torch.allclose(fast.query.distances.weight, every.weight[48:79], atol=0.05)


def test_a_stopped_call_makes_no_vector_again(
    encoder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    encoded: list[int] = []
    made = QueryTexts.make

    def counted(folder: Path, *more: Any) -> QueryTexts:
        before = (folder / "keys.bin").stat().st_size if (folder / "keys.bin").exists() else 0
        found = made(folder, *more)
        encoded.append((folder / "keys.bin").stat().st_size - before)
        return found

    monkeypatch.setattr(QueryTexts, "make", counted)
    arguments = (encoder, "--input", corpus, "--out", tmp_path / "fast")
    with monkeypatch.context() as patch:
        patch.setattr(distil, "export_model", stop)
        assert call(*arguments).exit_code != 0
    state = tmp_path / "fast.distilling" / "run" / "state.safetensors"
    assert state.is_file() and not (tmp_path / "fast").exists()
    assert call(*arguments).exit_code == 0
    assert encoded[0] > 0 == encoded[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--layers", "0,2"), "--layers must ascend from 0 to 1"),
        (("--layers", "first"), "a list of numbers such as 0,4,5"),
        (("--input", "nowhere.jsonl"), "cannot read nowhere.jsonl"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    options: tuple[str, str], said: str, encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    done = call(encoder, "--input", corpus, "--out", tmp_path / "fast", *options)
    assert done.exit_code == 2 and said in " ".join(done.output.split())
    assert not (tmp_path / "fast").exists()


def test_a_model_is_made_again_of_its_query_tower_and_the_encoder(
    encoder: Path, corpus: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "queries.safetensors"
    more = ("--quantize", "int8", "--layers", "0,1", "--keep-queries", kept, "--query-tokens", "16")
    done = call(encoder, "--input", corpus, "--out", tmp_path / "fast", *more)
    assert done.exit_code == 0, done.output
    again = imported(encoder, tmp_path / "again", "--queries", kept, "--quantize", "int8")
    fast = Model.open(tmp_path / "fast")
    assert again.preprocessor.schema.query_tokens == 16  # the tower's own limit
    for tower in ("query", "document"):
        assert np.array_equal(vectors(again, TEXTS, tower), vectors(fast, TEXTS, tower))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(b"no tower"), "holds no query tower"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "holds no query tower"),
        (lambda path: path.unlink(), "holds no query tower"),
        (lambda path: _about(path, encoder="0" * 64), "belongs to an encoder of SHA-256 000000000000…"),
        (lambda path: _about(path, tokens=9), "give --query-tokens 9"),
        (lambda path: _about(path, layers=[0]), "does not hold 1 layers"),
        (lambda path: _about(path, layers=[0, 200]), "requires layer 200"),
    ],
)
def test_a_query_tower_that_does_not_belong_is_refused_in_one_line(
    damage: Callable[[Path], object], said: str, encoder: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "queries.safetensors"
    query = read_towers(imported(encoder, tmp_path / "whole")).query
    whole = {name: each.detach().numpy() for name, each in query.named_parameters()}
    digest = file_sha256(encoder / "model.safetensors")
    write_queries_file(kept, whole, QueriesAbout(encoder=digest, layers=(0, 1), tokens=64))
    damage(kept)
    done = run(encoder, "--out", tmp_path / "again", "--queries", kept, "--query-tokens", "64")
    assert done.exit_code == 2 and said in done.output and len(done.output.splitlines()) == 1
    assert not (tmp_path / "again").exists()


def _about(path: Path, **changes: object) -> None:
    with safe_open(str(path), "np") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}
        about = {**json.loads(opened.metadata()["about"]), **changes}
    save_file(tensors, str(path), {"about": json.dumps(about)})
