"""`glow static-queries`: documents read as before, queries by a row a token that learns the tower's vectors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from glow.cli import app
from glow.records import Document
from glow.runtime import AttentionEncoder, Model
from glow.training import read_towers
from glow_model_export.parity import torch_vectors
from tests.model_export.test_import_model import imported, save, trained_tokenizer

MODELS = Path(__file__).parents[2] / "models"
WORDS = "bees find their way home by the sun and dance honey bread water salt boil oven bake clay".split()


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(WORDS, random.integers(1, 6))) for _ in range(400)]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return tmp_path / "texts.txt"


def call(*arguments: object) -> Any:
    fixed = ("static-queries", "--device", "cpu", "--threads", "1")
    return CliRunner().invoke(app, [*fixed, *(str(each) for each in arguments)])


def test_queries_learn_rows_and_documents_keep_their_files(
    toy_model: Path, texts: Path, tmp_path: Path
) -> None:
    done = call(toy_model, "--texts", texts, "--out", tmp_path / "static", "--epochs", "60")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (
        report["cosine"] > 0.75
        and report["training"]["held_out"] == len(set(texts.read_text().split("\n")) - {""}) // 20
    )
    before, after = Model.open(toy_model), Model.open(tmp_path / "static")
    assert after.hash != before.hash
    files = [model.manifest.files for model in (before, after)]
    assert (
        files[0]["document.bin"] == files[1]["document.bin"]
        and files[0]["words.bin"] == files[1]["words.bin"]
    )
    documents = [
        model.preprocessor.document(Document("d", {"title": ("bees dance",)})) for model in (before, after)
    ]
    vectors = [
        model.encoder("document").encode([each])
        for model, each in zip((before, after), documents, strict=True)
    ]
    assert np.array_equal(*vectors)
    assert not (tmp_path / "static.making").exists()
    shape = json.loads((tmp_path / "static" / "towers.json").read_bytes())
    assert (shape["layers"], shape["document_layers"]) == (0, 2)
    learned, first = after.encoder("query").encode(
        [after.preprocessor.query(text) for text in ("bees dance", "dance bees")]
    )
    assert np.allclose(learned, first, atol=1e-6)  # the order of words says nothing


def test_the_model_reads_back_and_explains(toy_model: Path, texts: Path, tmp_path: Path) -> None:
    assert call(toy_model, "--texts", texts, "--out", tmp_path / "static").exit_code == 0
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"_id": "d", "title": "bees", "text": "bees dance in the sun"}\n')
    refused = CliRunner().invoke(
        app,
        ["adapt", "--input", str(corpus), "--model", str(tmp_path / "static"), "--out", str(tmp_path / "a")],
    )
    assert refused.exit_code != 0 and "then run `glow static-queries`" in refused.output
    model = Model.open(tmp_path / "static")
    tokens = [model.preprocessor.query(text) for text in ("bees dance", "the sun", "salt")]
    towers, encoder = read_towers(model), model.encoder("query")
    assert np.abs(torch_vectors(towers.query, tokens, 0) - encoder.encode(tokens)).max() < 1e-5
    vectors, attention = AttentionEncoder(model.folder / "query-explain.onnx", 0).run(tokens)
    assert np.array_equal(vectors, encoder.run(tokens))
    shares = tokens[0].weights ** float(towers.query.gain.detach())
    assert np.allclose(attention[0, : len(tokens[0])], shares / shares.sum(), atol=1e-5)
    assert encoder.token_size is None and model.encoder("document").token_size is None
    options = ("--from-model", model.folder, "--out", tmp_path / "again", "--quantize", "int8")
    again = CliRunner().invoke(app, ["export-model", *map(str, options)])
    assert again.exit_code == 0, again.output
    exported = Model.open(tmp_path / "again").encoder("query").encode(tokens)
    assert np.abs(exported - encoder.encode(tokens)).max() < 1e-4


def test_an_imported_encoder_may_have_a_prefix_and_no_weights(texts: Path, tmp_path: Path) -> None:
    folder = save(tmp_path / "bert", "bert", trained_tokenizer("uncased"), "mean")
    whole = imported(folder, tmp_path / "whole", "--query-prefix", "query: ")
    done = call(whole.folder, "--texts", texts, "--out", tmp_path / "static")
    assert done.exit_code == 0, done.output
    static = Model.open(tmp_path / "static")
    assert len(static.preprocessor.query("bees")) > 3  # [CLS], the prefix, a word, [SEP]
    assert json.loads(done.stdout)["cosine"] > 0.0


def test_what_cannot_be_made_is_refused(toy_model: Path, texts: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.txt"
    few.write_text("bees\nbees\nhoney\n", encoding="utf-8")
    refused = call(toy_model, "--texts", few, "--out", tmp_path / "out")
    assert refused.exit_code == 2 and "expected 20 different texts at least, found 2" in refused.output
    few.write_bytes(b"bees \xff\n")
    for given, said in ((few, "position 5"), (tmp_path / "none.txt", "No such file")):
        refused = call(toy_model, "--texts", given, "--out", tmp_path / "out")
        assert refused.exit_code == 2 and said in " ".join(refused.output.split())
    (tmp_path / "out").mkdir()
    refused = call(toy_model, "--texts", texts, "--out", tmp_path / "out")
    assert refused.exit_code != 0 and "exists; choose another --out" in refused.output


def test_the_shipped_model_shares_what_documents_read_with_the_default_one() -> None:
    static, mini = (Model.open(MODELS / name) for name in ("glow-static", "glow-mini"))
    for name in ("document.bin", "words.bin", "vocab.txt", "schema.json", "weighting.json"):
        assert static.manifest.files[name] == mini.manifest.files[name], name
    assert sum(static.manifest.files[name].size_bytes for name in ("query.onnx", "query.bin")) < 16 << 20
    titles = ("List directory contents", "Extract files from an archive", "Show the manual of a command")
    pages = [static.preprocessor.document(Document(title, {"title": (title,)})) for title in titles]
    cosines = static.encoder("query").encode([static.preprocessor.query("how do I unpack a tar file")]) @ (
        static.encoder("document").encode(pages).T
    )
    assert int(cosines.argmax()) == 1
