"""Teachers: told apart by what decides a vector, and asked once."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from glow.errors import ConfigError
from glow.text import WordPieces
from glow.training import teacher
from glow.training.data import Collection
from glow.training.teacher import open_teacher, teacher_vectors
from glow.training.teacher_vectors import query_key
from tests.training.test_train_command import other_weights

TEXTS = ["how bees find home", "wax"]


def other_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": 4}), encoding="utf-8")


def other_vocabulary(folder: Path) -> None:
    first, *others = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "vocab.txt").write_text("\n".join([first, *reversed(others)]) + "\n", encoding="utf-8")


@pytest.mark.parametrize("change", [other_weights, other_shape, other_vocabulary])
def test_another_teacher_is_asked_itself_and_a_copy_is_not_asked_again(
    change: Callable[[Path], None], bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, other = tmp_path / "copy", tmp_path / "other"
    shutil.copytree(bert_folder, copied)
    shutil.copytree(bert_folder, other)
    change(other)

    def asked(folder: Path) -> np.ndarray:
        made = teacher_vectors(folder, None, TEXTS, [], [], tmp_path / "cache")
        return made.aims([query_key(text) for text in TEXTS], "texts")[:]

    found = [asked(folder) for folder in (bert_folder, other)]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert not np.array_equal(*found)
    monkeypatch.setattr(teacher, "batches_by_length", lambda *arguments: pytest.fail("encoded again"))
    assert np.array_equal(asked(copied), found[0])
    assert np.array_equal(asked(other), found[1])


def test_another_length_is_another_teacher(bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_teacher(bert_folder, None, []).hash
    monkeypatch.setattr(teacher, "MAX_TOKENS", 64)
    assert open_teacher(bert_folder, None, []).hash != before


def test_the_words_of_the_corpus_weigh_a_models_texts(
    toy_model: Path, toy_collection: Collection, tmp_path: Path
) -> None:
    documents = toy_collection.documents
    one, other = (open_teacher(toy_model, None, each) for each in (documents, documents[:2]))
    assert one.hash != other.hash
    assert not np.array_equal(one.queries(TEXTS), other.queries(TEXTS))
    # Also of a query tower that learns alone, for which no document is encoded.
    alone = teacher_vectors(toy_model, None, TEXTS, [], documents, tmp_path)
    assert alone.teacher == one.hash
    assert not np.array_equal(one.documents(documents[:2]), other.documents(documents[:2]))


def test_a_folder_that_is_no_teacher_is_named(bert_folder: Path, tmp_path: Path) -> None:
    shutil.copy(bert_folder / "config.json", tmp_path)
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        open_teacher(tmp_path, WordPieces(bert_folder / "vocab.txt"), [])
