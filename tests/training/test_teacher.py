"""Vectors of a teacher that are kept: they come back for the same teacher and texts alone."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from glow.errors import ConfigError
from glow.text import WordPieces
from glow.training import teacher
from glow.training.teacher import teacher_hash, teacher_vectors

TEXTS = ["how bees find home", "wax"]


def other_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors, size = load_file(path), path.stat().st_size
    tensors["encoder.layer.0.output.dense.weight"] *= -1.0
    save_file(tensors, path)
    assert path.stat().st_size == size


def other_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": 4}), encoding="utf-8")


def other_vocabulary(folder: Path) -> None:
    first, *others = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "vocab.txt").write_text("\n".join([first, *reversed(others)]) + "\n", encoding="utf-8")


@pytest.mark.parametrize("change", [other_weights, other_shape, other_vocabulary])
def test_another_teacher_is_asked_itself(
    change: Callable[[Path], None], bert_folder: Path, tmp_path: Path
) -> None:
    other, cache = tmp_path / "other", tmp_path / "cache"
    shutil.copytree(bert_folder, other)
    change(other)
    found = [
        teacher_vectors(TEXTS, folder, WordPieces(folder / "vocab.txt"), cache)
        for folder in (bert_folder, other)
    ]
    assert len(list(cache.iterdir())) == 2
    assert not np.array_equal(*found)
    assert np.array_equal(teacher_vectors(TEXTS, other, WordPieces(other / "vocab.txt")), found[1])


def test_kept_vectors_come_back(bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = WordPieces(bert_folder / "vocab.txt")
    first = teacher_vectors(TEXTS, bert_folder, pieces, tmp_path)
    copied = tmp_path / "copy"
    shutil.copytree(bert_folder, copied)
    monkeypatch.setattr(teacher, "_encode", lambda *arguments: pytest.fail("encoded again"))
    assert np.array_equal(teacher_vectors(TEXTS, copied, pieces, tmp_path), first)


def test_another_length_is_another_teacher(bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = WordPieces(bert_folder / "vocab.txt")
    before = teacher_hash(bert_folder, pieces)
    monkeypatch.setattr(teacher, "MAX_TOKENS", 64)
    assert teacher_hash(bert_folder, pieces) != before


def test_a_teacher_that_is_not_there_is_named(bert_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*model\.safetensors"):
        teacher_vectors(TEXTS, tmp_path, WordPieces(bert_folder / "vocab.txt"), tmp_path)
