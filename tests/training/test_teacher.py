"""Teachers: told apart by what decides a vector, asked once, their vectors on disk; towers of two depths that learn from them."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors.torch import load_file

from glow.errors import ConfigError, IntegrityError, MismatchError
from glow.nn import TowerConfig, TwoTowers, bert_config, minilm_folder
from glow.records import Document
from glow.text import WordPieces, lexical_words
from glow.training import Given, Progress, TrainConfig, load_checkpoint, save_checkpoint, teacher, train
from glow.training.checkpoint import TEACHER_MAP
from glow.training.data import Collection, PairBatches, topics_of
from glow.training.encode import vectors
from glow.training.run import read_metrics
from glow.training.teacher import Aims, TeacherVectors, document_key, open_teacher, query_key, teacher_vectors
from glow.training.tower_loss import Objective, ObjectiveConfig, Targets, lexical_part
from glow.training.towers import reciprocal_ranks
from research.encoders.train import average
from tests.training.conftest import MakePreprocessor, write_bert
from tests.training.test_train_command import other_weights

ASKED = ["how bees find home", "wax"]
WIDTH = 3
TEXTS = [f"text {number}" for number in range(7)]
KEYS = [query_key(text) for text in TEXTS]


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
        made = teacher_vectors(folder, ASKED, [], [], tmp_path / "cache")
        return made.aims([query_key(text) for text in ASKED], "texts")[:]

    found = [asked(folder) for folder in (bert_folder, other)]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert not np.array_equal(*found)
    monkeypatch.setattr(teacher, "batches_by_length", lambda *arguments: pytest.fail("encoded again"))
    assert np.array_equal(asked(copied), found[0])
    assert np.array_equal(asked(other), found[1])


def test_another_length_is_another_teacher(bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_teacher(bert_folder, []).hash
    monkeypatch.setattr(teacher, "MAX_TOKENS", 64)
    assert open_teacher(bert_folder, []).hash != before


def test_the_words_of_the_corpus_weigh_a_models_texts(
    toy_model: Path, toy_collection: Collection, tmp_path: Path
) -> None:
    """Also those of a query tower that learns alone, for which no document is encoded."""
    documents = toy_collection.documents
    one, other = (open_teacher(toy_model, each) for each in (documents, documents[:2]))
    assert one.hash != other.hash
    assert not np.array_equal(one.queries(ASKED), other.queries(ASKED))
    assert not np.array_equal(one.documents(documents[:2]), other.documents(documents[:2]))
    assert teacher_vectors(toy_model, ASKED, [], documents, tmp_path).teacher == one.hash


def test_folders_that_are_no_teachers_are_named(bert_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a teacher"):
        open_teacher(tmp_path, [])
    shutil.copy(bert_folder / "vocab.txt", tmp_path)
    with pytest.raises(ConfigError, match=r"config\.json"):
        open_teacher(tmp_path, [])
    shutil.copytree(bert_folder, tmp_path, dirs_exist_ok=True)
    pooling = tmp_path / "1_Pooling" / "config.json"
    pooling.parent.mkdir()
    for mean in ('{"pooling_mode_mean_tokens": true}', '{"pooling_mode": "mean"}'):
        pooling.write_text(mean, encoding="utf-8")
        assert open_teacher(tmp_path, []).queries(["honey bees"]).shape == (1, 16)
    pooling.write_text('{"pooling_mode": "cls"}', encoding="utf-8")
    with pytest.raises(ConfigError, match="glow import-model"):
        open_teacher(tmp_path, [])


class Teacher:
    """A text's vector is its number; it breaks off at text `breaks_at`."""

    def __init__(self, breaks_at: int = -1) -> None:
        self.asked: list[int] = []
        self.breaks_at = breaks_at

    def __call__(self, numbers: Sequence[int]) -> NDArray[np.float32]:
        if self.breaks_at in numbers:
            raise KeyboardInterrupt
        self.asked += numbers
        return np.repeat(np.array(numbers, np.float32)[:, None], WIDTH, 1)


def made(folder: Path, asked: Teacher, keys: Sequence[bytes] = KEYS, name: str = "t") -> TeacherVectors:
    return TeacherVectors.make(folder, name, keys, asked)


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
    document = Document("1", {"text": ("text 0",)})
    assert document_key(document) == document_key(replace(document, id="2")) != query_key("text 0")


@pytest.mark.parametrize(
    ("name", "lost", "kept"), [("vectors.f16", 2 * WIDTH + 1, 2), ("keys.bin", 5, 3), ("keys.bin", 0, 4)]
)
def test_a_call_that_was_stopped_goes_on_behind_what_both_files_hold(
    name: str, lost: int, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher, "CHUNK", 2)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, Teacher(breaks_at=5))
    with pytest.raises(IntegrityError, match="no finished vectors of a teacher"):
        TeacherVectors(tmp_path)
    with (tmp_path / name).open("r+b") as file:  # the last rows were written to one file alone
        file.truncate((tmp_path / name).stat().st_size - lost)
    again = Teacher()
    assert numbers_of(made(tmp_path, again)) == [0, 1, 2, 3, 4, 5, 6]
    assert again.asked == [*range(kept, 7)]
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


def alone(side: str, max_steps: int = 0, **towers: Any) -> TrainConfig:
    """One tower that learns from a teacher alone."""
    optimizer = {"batch_size": 16, "epochs": 8, "precision": "fp32", "learning_rate": 3e-3}
    objective = {"kind": "none", "distill_weight": 1.0, "list_weight": 1.0, "list_other": "teacher"}
    shape = {"init_layers": [0, 1], "learns": side, "train_words": False, "dropout": 0.0, **towers}
    sections = {"objective": objective, "towers": shape, "watch": {"steps": 36}}
    return TrainConfig.model_validate(
        {"name": "alone", "optimizer": {**optimizer, "max_steps": max_steps}, **sections}
    )


@pytest.mark.parametrize("side", ["query", "document"])
def test_one_tower_learns_from_a_wider_teacher_and_is_measured_against_it(
    side: str, toy_collection: Collection, collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    """Its map lies beside the checkpoint, and the next run starts from it."""
    told: list[Progress] = []
    wide, folders = tmp_path / "wide", [collection_folder]
    wide.mkdir()
    write_bert(wide, bert_folder / "vocab.txt", 24)
    given = Given(
        out=tmp_path / side, init=bert_folder, data=folders, dev=folders, teacher=wide, device="cpu"
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
    other, keys = "document", [*map(document_key, toy_collection.documents)]
    if side == "document":
        other, keys = "query", [*map(query_key, toy_collection.queries)]
    aims = TeacherVectors(next((tmp_path / "teacher.vectors").iterdir())).aims(keys, other)[:] @ learned.T
    found[other] = aims / np.linalg.norm(aims, axis=1, keepdims=True)
    ranks = reciprocal_ranks(found["query"] @ found["document"].T, toy_collection.relevant)
    measured = [row["dev"]["toy"] for row in read_metrics(given.run_folder) if "dev" in row]
    assert measured[-1] == pytest.approx(ranks.mean(), abs=1e-6) != measured[0]
    after = replace(given, out=tmp_path / "next", init=given.out)
    train(alone(side, max_steps=1), after)
    assert np.abs(load_file(after.out / TEACHER_MAP)["weight"].numpy() - learned).max() < 4e-3


def test_a_sentence_transformers_folder_teaches_as_its_library_says(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["who makes honey"]
    expected = SentenceTransformer(str(minilm_folder())).encode(texts, normalize_embeddings=True)
    found = teacher_vectors(minilm_folder(), texts, [], [], tmp_path).aims([query_key(texts[0])], "queries")
    assert np.allclose(found[:], expected, atol=2e-3)


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
    collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "precious.txt").touch()
    given = Given(out=tmp_path, init=bert_folder, data=[collection_folder], teacher=bert_folder, device="cpu")
    with pytest.raises(ConfigError, match="exists and is not a checkpoint"):
        train(alone("query"), given)
    assert (tmp_path / "precious.txt").exists()


def test_a_run_starts_from_a_bert_folder_with_a_tokenizer_beside_its_vocabulary(
    collection_folder: Path, bert_folder: Path, tmp_path: Path
) -> None:
    """all-MiniLM-L6-v2, the default, has one that pads to 128 tokens."""
    init = tmp_path / "init"
    shutil.copytree(bert_folder, init)
    shutil.copy(minilm_folder() / "tokenizer.json", init)
    out, folders = tmp_path / "out", [collection_folder]
    train(alone("query", 1), Given(out=out, init=init, data=folders, teacher=init, device="cpu"))
    assert load_checkpoint(out).report["steps"] == 1


@pytest.fixture(scope="module")
def sides(
    collection_folder: Path, bert_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Checkpoints of towers of two depths by the side that learned alone."""
    folders = {side: tmp_path_factory.mktemp("alone") / side for side in ("query", "document")}
    for side, out in folders.items():
        data = [collection_folder]
        given = Given(data=data, out=out, init=bert_folder, teacher=bert_folder, device="cpu")
        train(alone(side, 6, init_layers=[1], document_layers=[0, 1], weight_form="log"), given)
    return folders


def test_a_tower_that_learns_alone_leaves_the_other_as_it_is_and_both_can_be_put_together(
    sides: dict[str, Path], tmp_path: Path
) -> None:
    towers = {side: load_checkpoint(folder).towers for side, folder in sides.items()}
    assert (len(towers["query"].query.layers), len(towers["query"].document.layers)) == (1, 2)
    for side, other in (("query", "document"), ("document", "query")):
        learned, kept = towers[side].state_dict(), towers[other].state_dict()
        own = [name for name in learned if name.startswith(f"{side}.layers") and name.endswith("weight")]
        assert own
        assert not any(torch.equal(learned[name], kept[name]) for name in own)
    average(sides["query"], sides["document"], 0.0, 1.0, tmp_path / "both")
    both = load_checkpoint(tmp_path / "both")
    for side, source in towers.items():
        expected, found = getattr(source, side).state_dict(), getattr(both.towers, side).state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [part["query"] for part in both.report["averaged"]] == [1.0, 0.0]


def test_an_average_lies_between_and_other_towers_are_refused(sides: dict[str, Path], tmp_path: Path) -> None:
    first, second = sides.values()
    average(first, second, 0.25, 0.5, tmp_path / "mixed")
    folders = (first, second, tmp_path / "mixed")
    one, other, mixed = (load_checkpoint(each).towers.query.layers[0].inner.weight for each in folders)
    torch.testing.assert_close(mixed, 0.75 * one + 0.25 * other, atol=1e-6, rtol=0.0)
    preprocessor = load_checkpoint(first).preprocessor
    towers = TwoTowers(TowerConfig(vocabulary=5, hidden=16, heads=2), preprocessor.schema)
    save_checkpoint(tmp_path / "other", towers, preprocessor, {})
    with pytest.raises(MismatchError, match="differ in shape"):
        average(first, tmp_path / "other", 0.5, 0.5, tmp_path / "x")


def test_a_document_tower_may_be_deeper() -> None:
    assert TowerConfig(vocabulary=5, layers=3, document_layers=6).document.layers == 6
    assert TowerConfig(vocabulary=5, layers=3).document.layers == 3
    assert bert_config(minilm_folder(), layers=3, document_layers=6).document.layers == 6


def test_words_count_in_a_batch_as_in_a_hybrid_search(
    toy_collection: Collection, make_preprocessor: MakePreprocessor, toy_model: Path, tmp_path: Path
) -> None:
    """A document that shares words gets more, as BM25 times the query's openness says."""
    config = TrainConfig(name="words")
    pieces, schema = WordPieces(toy_model / "vocab.txt", config.weighting.unit), config.field_schema
    queries, documents = toy_collection.queries, toy_collection.documents
    vectors = unit(np.random.default_rng(0).normal(size=(len(queries) + len(documents), 8)))
    targets = Targets(*(Aims(vectors, rows) for rows in np.split(np.arange(len(vectors)), [len(queries)])))
    part = lexical_part(tmp_path / "words", toy_collection, schema, pieces, targets)
    batch = PairBatches([toy_collection], make_preprocessor(config), 16, 0).batch(0, 0, 1)
    scores = part(batch)
    assert scores.shape == (16, 16)
    for row, query in enumerate(batch.queries):
        for column, number in enumerate(batch.documents):
            words = set(lexical_words(documents[number], schema, pieces))
            assert scores[row, column] == 0.0 or words & set(pieces.words(queries[query]))
    assert (np.diag(scores) > 0).mean() > 0.9


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_batches_follow_topics_and_slips_come_as_often_as_asked(
    toy_collection: Collection, make_preprocessor: MakePreprocessor
) -> None:
    truth = np.arange(len(toy_collection.queries)) % 4
    preprocessor, options = (
        make_preprocessor(TrainConfig(name="topics")),
        {"typo_rate": 0.5, "topics": [truth]},
    )
    batches = PairBatches([toy_collection], preprocessor, 8, 0, **options)
    found = [batches.batch(step, 0, 1) for step in range(batches.steps(1))]
    topics = [set(truth[batch.queries]) for batch in found]
    assert all(len(topic) <= 2 for topic in topics)
    assert sum(len(topic) == 1 for topic in topics) > len(topics) / 2
    assert 0.3 < float(np.mean([batch.typos > 0 for batch in found])) < 0.7
    assert batches.batch(3, 0, 1).typos.tolist() == found[3].typos.tolist()
    changed = []
    for batch in found:
        for tokens, number, seed in zip(batches.queries_of(batch), batch.queries, batch.typos, strict=True):
            whole = batches.queries[0][int(number)]
            assert seed or tokens is whole
            changed += [tokens.ids.tolist() != whole.ids.tolist()] * bool(seed)
    assert sum(changed) > len(changed) / 2  # a query of short words alone has no typo


def test_topics_of_vectors_that_lie_apart_are_found() -> None:
    truth = np.repeat(np.arange(3), 40)
    vectors = unit(np.eye(3, 6)[truth] + 0.05 * np.random.default_rng(1).normal(size=(120, 6)))
    labels = topics_of(vectors, 3, seed=2)
    assert len({*zip(truth.tolist(), labels.tolist(), strict=True)}) == len(set(labels.tolist()))


def test_the_list_of_hybrid_scores_pulls_towards_documents_that_share_words() -> None:
    random = torch.Generator().manual_seed(1)
    queries = torch.nn.functional.normalize(torch.randn(4, 8, generator=random), dim=-1)
    documents = queries.flip(0).clone().requires_grad_()
    lexical = torch.zeros(4, 4)
    lexical[0, 2] = 1.0
    options = {"kind": "none", "list_weight": 1.0, "list_lexical": 1.0}
    objective, same = Objective(ObjectiveConfig.model_validate(options)), torch.eye(4, dtype=torch.bool)
    loss, _ = objective(queries, documents, same, (queries, queries), lexical)
    loss.backward()
    assert documents.grad is not None
    assert float(documents.grad[2] @ queries[0]) < 0.0  # a step against the gradient brings it nearer
    without, _ = objective(queries, documents, same, (queries, queries), torch.zeros(4, 4))
    assert float(without.detach()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("section", "options", "said"),
    [
        ("towers", {"learns": "query"}, "train_words needs learns 'both'"),
        ("batches", {"topics": 4}, "clusters of a teacher's vectors"),
        ("objective", {"list_lexical": 1.0}, "needs a list_weight above 0"),
    ],
)
def test_options_that_would_do_nothing_are_refused(section: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TrainConfig.model_validate({"name": "x", section: options})
