"""Training of the released encoders, with tiny random towers on a CPU, and the texts that it reads."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from glow.nn import TowerConfig, TwoTowers
from glow.runtime import Model
from glow.text import Preprocessor
from glow.training import with_few_layers
from research.encoders.pack import (
    OPENINGS,
    TASKS,
    Flat,
    Tensors,
    flat,
    make_pack,
    make_texts,
    question,
    to_bytes,
)
from research.encoders.train import bm25_of, flat_texts, imitate, prepare, same_tokens, train_towers
from research.folders import write_folder

WORDS = "bees find their way home by the sun and dance honey fox jumps over lazy dog quick brown".split()
Packed = tuple[Tensors, Preprocessor]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Packed:
    folder, random = tmp_path_factory.mktemp("data") / "links", np.random.default_rng(0)
    texts = [[" ".join(random.choice(WORDS, count)) for count in (3, 20)] for _ in range(60)]
    documents = [{"_id": f"link:p/{i}#top", "title": a, "text": b} for i, (a, b) in enumerate(texts)]
    queries = [{"_id": f"q{i}", "text": title} for i, (title, _) in enumerate(texts)]
    write_folder(folder, documents, queries, {"train": {f"q{i}": [f"link:p/{i}#top"] for i in range(60)}})
    make_pack([folder], preprocessor := Model.open(toy_model).preprocessor, folder / "pack")
    return load_file(folder / "pack"), preprocessor


def towers(packed: Packed, layers: int, form: str, pooling: str) -> TwoTowers:
    torch.manual_seed(layers)
    shape = {"vocabulary": packed[1].pieces.size, "hidden": 16, "heads": 2, "intermediate": 32}
    kind = {"layers": layers, "document_layers": 3, "weight_form": form, "pooling": pooling}
    made = TwoTowers(TowerConfig(**shape, **kind, dropout=0.0), packed[1].schema).eval()
    made.load_state_dict({name: value * 10 ** (value.ndim == 2) for name, value in made.state_dict().items()})
    return made


def test_weights_come_back_within_a_step() -> None:
    weights = np.geomspace(0.001, 29, 999, dtype=np.float32)
    coded = Flat(0, torch.zeros(999), torch.tensor([999]), torch.from_numpy(to_bytes(weights)))
    assert np.abs(np.log2(coded.batch(torch.tensor([0]), 999)[3][0].numpy() / weights)).max() <= 1 / 32 + 1e-4


def test_a_pack_has_judged_pairs_titles_windows_and_urls(packed: Packed) -> None:
    own, judged, fields = (packed[0][name].tolist() for name in ("own", "judged", "documents.fields"))
    assert own[:60] == list(range(60)) and judged == [True] * 60 + [False] * (len(own) - 60)
    assert 120 < len(own) < 180 and fields.count(packed[1].schema.names.index("url")) > 90  # 60 [SEP]


def test_bm25_is_that_of_the_definition(packed: Packed) -> None:
    pieces, rows, bm25 = packed[1].pieces, torch.arange(60), bm25_of(*packed)
    ids, _, fields, _ = flat(packed[0], "documents", pieces.pad_id).batch(rows, 160)
    specials = {pieces.cls_id, pieces.sep_id, pieces.pad_id, *pieces.pieces("\ue000")}
    ids[fields == packed[1].schema.names.index("url")] = pieces.pad_id
    texts = [[token for token in row if token not in specials] for row in ids.tolist()]
    tokens = list(set(pieces.pieces("honey") + pieces.pieces("sun")) - specials)
    counts = np.array([[text.count(token) for token in tokens] for text in texts])
    lengths, frequency = np.array([len(text) for text in texts])[:, None], (counts > 0).sum(0)
    idf = np.log(1 + (60 - frequency + 0.5) / (frequency + 0.5))
    impacts = counts / (counts + 0.9 * (0.6 + 0.4 * lengths / lengths.mean())) * idf
    asked = torch.tensor([[pieces.cls_id, *tokens]])
    found = bm25.shares(asked, torch.ones_like(asked), bm25.documents(rows))
    assert np.allclose(found[0], impacts.sum(1) / idf.sum(), atol=1e-5) and found.max() > 0.2


def test_a_query_tower_learns_the_whole_encoder(packed: Packed) -> None:
    whole, texts = towers(packed, 3, "plain", "mean"), unweighted(packed)
    aims, tower = texts.encode(whole.query), with_few_layers(whole, [0, 2]).query.eval()
    before = texts.encode(tower)
    imitate(tower, texts, aims, 30, 64, 6e-3, 0.05)
    far, near = (1.0 - (each.float() * aims.float()).sum(1).mean() for each in (before, texts.encode(tower)))
    assert near < 0.5 * far


def unweighted(packed: Packed) -> Flat:
    return Flat(0, packed[0]["queries.ids"], packed[0]["queries.lengths"])


def margin(packed: Packed, made: TwoTowers) -> float:
    texts = [flat(packed[0], name, 0) for name in ("queries", "documents")]
    scores = texts[0].encode(made.query).float() @ texts[1].encode(made.document).float().T
    return float(scores.gather(1, packed[0]["own"][:, None]).mean() - scores.mean())


def test_towers_learn_the_lists(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("QUERY_RATE", 0.01), ("DOCUMENT_RATE", 0.01), ("START_PULL", 0.0)):
        monkeypatch.setattr(f"research.encoders.train.{name}", value)
    start, teacher = towers(packed, 1, "log", "weighted"), towers(packed, 2, "plain", "mean")
    pieces, more = packed[1].pieces, flat_texts(["bees dance"], packed[1], torch.device("cpu"))
    made = prepare(*packed, start, teacher, same_tokens(pieces, pieces), pieces.pad_id, more, 20)
    assert made["candidates"].shape[1] == 24 and not (made["candidates"] == packed[0]["own"][:, None]).any()
    made["teacher.documents"] = torch.eye(60).half()  # only the own document is like a query
    made["teacher.queries"] = made["teacher.documents"][packed[0]["own"]]
    before = margin(packed, start)
    train_towers(start, packed[0], made, packed[1], 30)
    assert margin(packed, start) > 5.0 * before
    assert start.query.gain.abs() > 0


def test_another_seed_is_another_run(packed: Packed) -> None:
    whole, texts = towers(packed, 3, "plain", "mean"), unweighted(packed)
    aims, found = texts.encode(whole.query), []
    for seed in (1, 2, 1):
        tower = with_few_layers(whole, [0, 2]).query.eval()
        imitate(tower, texts, aims, 3, 16, 6e-3, 0.05, seed=seed)
        found.append(texts.encode(tower))
    assert torch.equal(found[0], found[2]) and not torch.equal(found[0], found[1])


@pytest.mark.parametrize(
    ("heading", "task"),
    [
        ("Installing packages", "install packages"),
        ("Setting the proxy", "set the proxy"),
        ("Running a command:", "run a command:"),
    ],
)
def test_a_gerund_becomes_a_task(heading: str, task: str) -> None:
    found = {question(heading, np.random.default_rng(seed)) for seed in range(40)}
    assert found == {f"{opening} {task}".strip() for opening in TASKS}


def test_other_texts_get_an_opening() -> None:
    found = question("A steam engine turns heat into motion.", np.random.default_rng(3))
    opening = next(each for each in OPENINGS if found.startswith(each))
    assert found.removeprefix(opening).strip(" ?").lower() in "a steam engine turns heat into motion"


def test_queries_of_other_splits_are_no_texts(tmp_path: Path) -> None:
    text = "Steam is hot water. It drives engines of every kind."
    queries = [{"_id": "q1", "text": "train me"}, {"_id": "q2", "text": "keep me apart"}]
    write_folder(tmp_path, [{"_id": "d", "title": "Steam", "text": text}], queries, {"train": {"q1": ["d"]}})
    found = make_texts([tmp_path], 100, 0)
    assert "train me" in found and not any("apart" in each for each in found)
    assert found == make_texts([tmp_path], 100, 0) and len(make_texts([tmp_path], 1, 0)) == 1
