"""Towers and training on a GPU: what the CPU computes, in fp16 and bf16, and a run that goes on where it was stopped."""

import json
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from glow.nn import Tower, TowerConfig

HAS_CUDA = torch.cuda.is_available()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not HAS_CUDA, reason="torch sees no GPU")]
WORDS = (
    "bees find home by the sun and light honey hive coffee seeds roast water tide moon sea wind sail".split()
)


def tower() -> tuple[Tower, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    config = TowerConfig(
        vocabulary=200, hidden=64, layers=3, heads=4, intermediate=256, weight_form="log", gain=0.5
    )
    made = Tower(config, nn.Embedding(200, 64), 64, 5).eval()
    ids = torch.randint(0, 200, (8, 40))
    mask = torch.ones_like(ids)
    mask[3, 20:] = 0
    return made, (ids, mask, torch.zeros_like(ids), torch.rand(ids.shape) + 0.5)


@pytest.mark.parametrize(
    ("kind", "least"), [(None, 0.99999), (torch.float16, 0.9999), (torch.bfloat16, 0.999)]
)
def test_a_tower_gives_the_vectors_that_the_cpu_gives(kind: torch.dtype | None, least: float) -> None:
    made, inputs = tower()
    with torch.inference_mode():
        expected = made(*inputs)
        with torch.autocast("cuda", kind or torch.float16, enabled=kind is not None):
            found = made.cuda()(*(tensor.cuda() for tensor in inputs)).float().cpu()
    # Of directions: under autocast a vector's length is rounded as the rest is.
    assert float(functional.cosine_similarity(found, expected, dim=-1).min()) > least


def write(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "toy"
    (folder / "qrels").mkdir(parents=True)
    chance = Random(0)  # noqa: S311 - no secret
    texts = [" ".join(chance.sample(WORDS, 9)) for _ in range(48)]
    rows = [{"_id": f"d{n}", "title": text.split()[0], "text": text} for n, text in enumerate(texts)]
    write(folder / "corpus.jsonl", rows)
    queries = [{"_id": f"q{n}", "text": " ".join(text.split()[2:6])} for n, text in enumerate(texts)]
    write(folder / "queries.jsonl", queries)
    judged = "".join(f"q{n}\td{n}\t1\n" for n in range(48))
    (folder / "qrels" / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
    return folder


@pytest.fixture
def init(tmp_path: Path) -> Path:
    """Random towers over a vocabulary of whole words."""
    from tests.training.conftest import write_bert

    (tmp_path / "init").mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (tmp_path / "words.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return write_bert(tmp_path / "init", tmp_path / "words.txt", 32)


def test_training_learns_and_goes_on_where_it_was(data: Path, init: Path, tmp_path: Path) -> None:
    from glow.training import Given, TrainConfig, train

    def config(steps: int) -> TrainConfig:
        options = {
            "batch_size": 16,
            "epochs": 100,
            "max_steps": steps,
            "learning_rate": 3e-3,
            "precision": "bf16",
        }
        towers = {"init_layers": [0], "weight_form": "log"}
        return TrainConfig.model_validate(
            {
                "name": "gpu",
                "checkpoint_steps": 10,
                "towers": towers,
                # Towers at chance give all queries nearly one vector, which the mask would take for one question.
                "objective": {"query_mask": 1.0},
                "optimizer": options,
            }
        )

    inputs = Given(data=[data], out=tmp_path / "out", init=init, device="cuda")
    report = train(config(40), inputs)
    assert report["steps"] == 40
    rows = [json.loads(line) for line in (tmp_path / "out.run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] < 0.8 * rows[0]["loss"]
    before = load_file(tmp_path / "out" / "model.safetensors")
    assert train(config(40), inputs)["steps"] == 40  # finished: nothing is done again
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in after.values())
