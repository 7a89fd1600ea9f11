"""Vectors of a teacher on disk: made once, whole, for what they are of; and towers that learn from those of another width."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.torch import load_file

from glow.errors import IntegrityError, MismatchError
from glow.records import Document
from glow.training import Given, Progress, TrainConfig, load_checkpoint, train
from glow.training import teacher_vectors as module
from glow.training.checkpoint import TEACHER_MAP
from glow.training.data import Collection
from glow.training.encode import vectors
from glow.training.run import read_metrics
from glow.training.teacher_vectors import TeacherVectors, document_key, query_key
from glow.training.watch import reciprocal_ranks

WIDTH = 3
KEYS_OF: Mapping[str, Callable[[Collection], list[bytes]]] = {
    "query": lambda collection: [*map(query_key, collection.queries)],
    "document": lambda collection: [*map(document_key, collection.documents)],
}
TEXTS = [f"text {number}" for number in range(7)]
KEYS = [query_key(text) for text in TEXTS]


class Teacher:
    """Counts whom it is asked for; a text's vector is its number, and it breaks off at text `breaks_at`."""

    def __init__(self, breaks_at: int = -1) -> None:
        self.asked: list[int] = []
        self.breaks_at = breaks_at

    def __call__(self, numbers: Sequence[int]) -> NDArray[np.float32]:
        """Vectors of texts."""
        if self.breaks_at in numbers:
            raise KeyboardInterrupt
        self.asked += numbers
        return np.repeat(np.array(numbers, np.float32)[:, None], WIDTH, 1)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)


def made(folder: Path, teacher: Teacher, keys: Sequence[bytes] = KEYS, name: str = "t") -> TeacherVectors:
    return TeacherVectors.make(folder, name, keys, teacher)


def numbers_of(vectors: TeacherVectors, keys: Sequence[bytes] = KEYS) -> list[float]:
    found = vectors.aims(keys, "texts")[:]
    assert found.shape == (len(keys), WIDTH)
    return found[:, 0].tolist()


def test_vectors_are_made_once_and_found_by_what_they_are_of(tmp_path: Path) -> None:
    first, again = Teacher(), Teacher()
    twice = [*KEYS[:5], KEYS[0]]
    assert numbers_of(made(tmp_path, first, twice), twice) == [0, 1, 2, 3, 4, 0]
    assert sorted(first.asked) == [0, 1, 2, 3, 4], "a text that comes twice is encoded once"
    assert numbers_of(made(tmp_path, again), KEYS[::-1]) == [6, 5, 4, 3, 2, 1, 0]
    assert again.asked == [5, 6]
    last = Teacher()
    assert numbers_of(made(tmp_path, last, KEYS[2:4]), KEYS[2:4]) == [2, 3]
    assert last.asked == []
    document = Document("1", {"text": ("text 0",)})
    assert document_key(document) == document_key(replace(document, id="2")) != query_key("text 0")


@pytest.mark.parametrize(("name", "lost"), [("vectors.f16", 2 * WIDTH + 1), ("keys.bin", 5), ("keys.bin", 0)])
def test_a_call_that_was_stopped_goes_on_behind_what_both_files_hold(
    name: str, lost: int, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, Teacher(breaks_at=5))
    with pytest.raises(IntegrityError, match="no finished vectors of a teacher"):
        TeacherVectors(tmp_path)
    with (tmp_path / name).open("r+b") as file:  # the last rows were written to one file alone
        file.truncate((tmp_path / name).stat().st_size - lost)
    again = Teacher()
    assert numbers_of(made(tmp_path, again)) == [0, 1, 2, 3, 4, 5, 6]
    assert again.asked == [*range(2 if lost > 6 else 3 if lost else 4, 7)]
    assert (tmp_path / "vectors.f16").stat().st_size == 7 * 2 * WIDTH


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["vectors.f16", "keys.bin"])
@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(b"")])
def test_damage_is_named(name: str, damage: Callable[[Path], Any], tmp_path: Path) -> None:
    made(tmp_path, Teacher())
    damage(tmp_path / name)
    with pytest.raises(IntegrityError, match=name):
        TeacherVectors(tmp_path)
    with pytest.raises(IntegrityError, match=name):
        made(tmp_path, Teacher(), [*KEYS, query_key("one more")])


@pytest.mark.parametrize("text", ["", "[]", '{"teacher": "t"}', "{"])
def test_a_damaged_header_is_named(text: str, tmp_path: Path) -> None:
    made(tmp_path, Teacher())
    (tmp_path / "teacher.json").write_text(text, encoding="utf-8")
    with pytest.raises(IntegrityError, match="no finished vectors of a teacher"):
        TeacherVectors(tmp_path)
    with pytest.raises(IntegrityError, match=r"teacher\.json is damaged"):
        made(tmp_path, Teacher())


def test_other_data_and_another_teacher_are_refused(tmp_path: Path) -> None:
    vectors = made(tmp_path, Teacher())
    others = [*KEYS[:2], query_key("another"), query_key("one more")]
    with pytest.raises(MismatchError, match=r"lacks 2 of 4 vectors of texts \(the first: number 2\)"):
        vectors.aims(others, "texts")
    with pytest.raises(MismatchError, match="vectors of another teacher"):
        made(tmp_path, Teacher(), name="u")


def wide(texts: Sequence[str]) -> NDArray[np.float32]:
    """A teacher of 24 dimensions, whose texts are near if they share letters."""
    counts = np.array([[text.lower().count(chr(97 + place)) + 0.1 for place in range(24)] for text in texts])
    return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def kept(toy_collection: Collection, tmp_path: Path) -> Path:
    """What `glow teach` makes of the toy collection with that teacher."""
    queries, documents = toy_collection.queries, toy_collection.documents
    texts = [*queries, *(document.fields["text"][0] for document in documents)]
    keys = [key for make in KEYS_OF.values() for key in make(toy_collection)]
    folder = tmp_path / "wide"
    TeacherVectors.make(folder, "wide", keys, lambda numbers: wide([texts[number] for number in numbers]))
    return folder


def alone(side: str, max_steps: int = 0) -> TrainConfig:
    options: dict[str, Any] = {
        "batch_size": 16,
        "epochs": 8,
        "max_steps": max_steps,
        "precision": "fp32",
        "learning_rate": 3e-3,
    }
    objective = {"kind": "none", "distill_weight": 1.0, "list_weight": 1.0, "list_other": "teacher"}
    towers = {"init_layers": [0, 1], "learns": side, "train_words": False, "dropout": 0.0}
    sections = {"objective": objective, "towers": towers, "watch": {"steps": 36}}
    return TrainConfig.model_validate({"name": "alone", "optimizer": options, **sections})


@pytest.mark.parametrize("side", ["query", "document"])
def test_one_tower_learns_from_a_wider_teacher_and_is_measured_against_it(
    side: str,
    kept: Path,
    toy_collection: Collection,
    collection_folder: Path,
    bert_folder: Path,
    tmp_path: Path,
) -> None:
    """Its map lies beside the checkpoint, and the next run starts from it."""
    told: list[Progress] = []
    folders = [collection_folder]
    given = Given(
        out=tmp_path / side, init=bert_folder, data=folders, dev=folders, teacher=kept, device="cpu"
    )
    train(alone(side), given, tell=told.append)
    assert np.mean([each.last for each in told[-5:]]) < 0.8 * np.mean([each.last for each in told[:5]])
    learned = load_file(given.out / TEACHER_MAP)["weight"].numpy()
    assert learned.shape == (16, 24)
    opened = load_checkpoint(given.out)
    texts = {
        "query": [opened.preprocessor.query(text) for text in toy_collection.queries],
        "document": [opened.preprocessor.document(document) for document in toy_collection.documents],
    }
    found = {each: vectors(getattr(opened.towers, each), texts[each], 0, "fp32") for each in texts}
    other = "document" if side == "query" else "query"
    keys = KEYS_OF[other](toy_collection)
    aims = TeacherVectors(kept).aims(keys, other)[:] @ learned.T
    found[other] = aims / np.linalg.norm(aims, axis=1, keepdims=True)
    ranks = reciprocal_ranks(found["query"] @ found["document"].T, toy_collection.relevant)
    measured = [row["dev"]["toy"] for row in read_metrics(given.run_folder) if "dev" in row]
    assert measured[-1] == pytest.approx(ranks.mean(), abs=1e-6) != measured[0]
    after = replace(given, out=tmp_path / "next", init=given.out)
    train(alone(side, max_steps=1), after)
    assert np.abs(load_file(after.out / TEACHER_MAP)["weight"].numpy() - learned).max() < 4e-3
