"""`glow teach`, and what starts from folders that other tools made."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import typer.testing

from glow.cli import app
from glow.nn import minilm_folder
from glow.text import WordPieces
from glow.training import teacher
from glow.training.checkpoint import TEACHER_MAP
from glow.training.config import ObjectiveConfig
from glow.training.objective import Objective
from glow.training.teacher_vectors import TeacherVectors, query_key

DISTIL = """
kind = "towers"
name = "distil"
[towers]
init_layers = [0, 1]
train_words = false
learns = "query"
[objective]
kind = "none"
distill_weight = 1.0
list_weight = 1.0
list_other = "teacher"
[optimizer]
batch_size = 16
max_steps = 4
precision = "fp32"
[watch]
steps = 2
"""


def glow(*arguments: object) -> typer.testing.Result:
    return typer.testing.CliRunner().invoke(app, [str(argument) for argument in arguments])


def letters(texts: list[str]) -> np.ndarray:
    """A teacher of 24 numbers."""
    counts = np.array([[text.lower().count(chr(97 + place)) for place in range(24)] for text in texts], float)
    return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


def one_short(texts: list[str]) -> np.ndarray:
    """A teacher that leaves a text out."""
    return letters(texts)[1:]


def endless(texts: list[str]) -> np.ndarray:
    """A teacher with a number that is none."""
    return np.full_like(letters(texts), np.inf)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "distil.toml"
    path.write_text(DISTIL, encoding="utf-8")
    return path


def test_a_function_of_another_width_teaches_one_tower(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    taught, out = tmp_path / "taught", tmp_path / "out"
    teacher = f"{__name__}:letters"
    done = glow("teach", "--teacher", teacher, "--data", collection_folder, "--out", taught)
    assert done.exit_code == 0, done.output
    assert "of 24 numbers" in done.stdout
    query = json.loads((collection_folder / "queries.jsonl").read_text().splitlines()[0])["text"]
    found = TeacherVectors(taught).aims([query_key(query)], "queries")[[0]]
    assert np.allclose(found[0], letters([query])[0], atol=1e-3)
    call = (
        "--config",
        config,
        "--data",
        collection_folder,
        "--dev",
        collection_folder,
        "--init",
        bert_folder,
    )
    done = glow("train", *call, "--teacher", taught, "--out", out, "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert (out / TEACHER_MAP).is_file()
    rows = [json.loads(line) for line in (tmp_path / "out.run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "dev" in row] == [2, 4]


def test_a_sentence_transformers_folder_teaches_as_its_library_says(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    data = tmp_path / "data"
    data.mkdir()
    (data / "corpus.jsonl").write_text(
        '{"_id": "1", "title": "bees", "text": "Bees make honey."}\n', encoding="utf-8"
    )
    (data / "queries.jsonl").write_text('{"_id": "q", "text": "who makes honey"}\n', encoding="utf-8")
    done = glow("teach", "--teacher", minilm_folder(), "--data", data, "--out", tmp_path / "taught")
    assert done.exit_code == 0, done.output
    expected = SentenceTransformer(str(minilm_folder())).encode(
        ["who makes honey"], normalize_embeddings=True
    )
    found = TeacherVectors(tmp_path / "taught").aims([query_key("who makes honey")], "queries")[[0]]
    assert np.allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("teacher", ["nowhere:at_all", "json:no_such_function"])
def test_a_teacher_that_is_not_there_is_named(teacher: str, collection_folder: Path, tmp_path: Path) -> None:
    done = glow("teach", "--teacher", teacher, "--data", collection_folder, "--out", tmp_path / "taught")
    assert done.exit_code == 2 and f"no teacher {teacher}" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("name", "said"), [("one_short", "for 200 texts, expected (200"), ("endless", "NaN or infinity")]
)
def test_what_a_function_gives_is_checked(
    name: str, said: str, collection_folder: Path, tmp_path: Path
) -> None:
    done = glow(
        "teach", "--teacher", f"{__name__}:{name}", "--data", collection_folder, "--out", tmp_path / "taught"
    )
    assert done.exit_code == 2 and said in " ".join(done.output.split())


def test_a_shared_vocabulary_is_read_without_the_library_if_the_tokens_mean_is_all(
    bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher, "_sentence_transformer", lambda folder: letters)
    pieces = WordPieces(bert_folder / "vocab.txt")
    folder = tmp_path / "saved"
    shutil.copytree(bert_folder, folder)
    modules = [
        {"type": f"models.{name}", "path": path}
        for name, path in (("Transformer", ""), ("Pooling", "1_Pooling"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    for mode, width in (("mean_tokens", 16), ("cls_token", 24)):
        (folder / "1_Pooling" / "config.json").write_text(
            json.dumps({f"pooling_mode_{mode}": True}), encoding="utf-8"
        )
        assert teacher.open_teacher(folder, pieces, []).queries(["honey bees"]).shape == (1, width)


def test_the_list_moves_the_map_and_the_cosine_does_not() -> None:
    """Both would meet in one direction for all texts."""
    vectors, wanted, others = (
        torch.nn.functional.normalize(torch.randn(5, size), dim=-1) for size in (4, 6, 6)
    )
    for list_weight in (0.0, 1.0):
        options = {"kind": "none", "distill_weight": 1.0, "list_weight": list_weight}
        objective = Objective(ObjectiveConfig.model_validate(options), hidden=4, teacher=6)
        loss, _ = objective.alone(vectors.clone().requires_grad_(), wanted, others)
        loss.backward()
        assert objective.map is not None and (objective.map.weight.grad is not None) == bool(list_weight)


def test_a_folder_that_is_no_checkpoint_is_not_written_over(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious.txt").touch()
    call = ("train", "--config", config, "--data", collection_folder, "--out", tmp_path / "out")
    done = glow(*call, "--init", bert_folder, "--teacher", bert_folder)
    assert done.exit_code == 2 and "exists and is not a checkpoint" in " ".join(done.output.split())
    assert (tmp_path / "out" / "precious.txt").exists()


def test_a_run_starts_from_a_bert_folder_with_a_tokenizer_beside_its_vocabulary(
    config: Path, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    """all-MiniLM-L6-v2, the default, has one that pads to 128 tokens."""
    init = tmp_path / "init"
    shutil.copytree(bert_folder, init)
    shutil.copy(minilm_folder() / "tokenizer.json", init)
    call = ("train", "--config", config, "--data", collection_folder, "--init", init, "--teacher", init)
    done = glow(*call, "--out", tmp_path / "out", "--device", "cpu", "--dry")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["steps"] == 4 and not (tmp_path / "out").exists()
