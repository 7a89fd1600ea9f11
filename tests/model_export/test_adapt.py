"""`glow adapt`: documents alone become a model that builds an index; a stopped call goes on; what cannot be is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from click.testing import Result
from typer.testing import CliRunner

from glow.artifact import default_model
from glow.errors import ExportError, GateError
from glow.runtime import Model
from glow.training import TrainConfig
from glow_model_export import adapt
from glow_model_export.adapt_gate import MIN_CLICKED, clicked_only, judge_adapted, judging_folder
from glow_model_export.adapt_recipe import adapt_config
from glow_model_export.package import Source, export_model
from glow_model_export.quantize import Quantization

DOCUMENTS = [
    {
        "_id": f"d{number}",
        "title": f"How {animal} live",
        "text": f"{animal.title()} live in the {place}. They look for food at night, and raise their young in spring.",
    }
    for number, (animal, place) in enumerate(
        (animal, place)
        for animal in ("bees", "owls", "wolves", "salmon", "otters", "badgers")
        for place in ("forest", "river", "hills", "old garden behind the house")
    )
]


def run(*arguments: object) -> Result:
    app = typer.Typer(add_completion=False)
    app.command()(adapt.adapt_command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS), encoding="utf-8")
    return path


def test_documents_alone_become_a_model_and_a_stopped_call_goes_on(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped model, one step, after a moment of pre-training; an export that is refused stands for whatever ends the first call.

    The report says how the new model compares, by queries of documents that were held out of training.
    """
    many = ({**each, "_id": f"{each['_id']}-{copy}"} for copy in range(5) for each in DOCUMENTS)
    source.write_text("".join(json.dumps(each) + "\n" for each in many), encoding="utf-8")
    call = (
        "--input",
        source,
        "--out",
        tmp_path / "mine",
        "--max-steps",
        1,
        "--quantize",
        "none",
        "--threads",
        1,
        "--pretrain-minutes",
        0.001,
    )

    def stop(*_: object, **__: object) -> None:
        raise ExportError("too far from the trained tower")

    with monkeypatch.context() as patch:
        patch.setattr(adapt, "export_model", stop)
        refused = run(*call)
    assert refused.exit_code == ExportError.exit_code
    assert "too far from the trained tower; nothing is lost: the trained towers are in" in " ".join(
        refused.output.split()
    )
    assert (tmp_path / "mine.adapting" / "checkpoint").is_dir() and not (tmp_path / "mine").exists()
    before = (tmp_path / "mine.adapting" / "checkpoint" / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(adapt, "_clear", lambda work: None)  # to see that nothing was trained again
    done = run(*call, "--json", tmp_path / "report.json")
    assert done.exit_code == 0, done.output
    after = (tmp_path / "mine.adapting" / "checkpoint" / "model.safetensors").stat().st_mtime_ns
    assert after == before
    report = json.loads((tmp_path / "report.json").read_bytes())
    base, mine = Model.open(default_model()), Model.open(tmp_path / "mine")
    assert report["adapted_from"] == base.label and mine.hash != base.hash
    assert mine.preprocessor.schema == base.preprocessor.schema
    assert mine.manifest.parents["source"]["hash"] == base.hash
    assert report["pretraining"]["steps"] >= 1 and "pre-training: step" in refused.stderr
    verdict, pairs = report["verdict"], tmp_path / "mine.adapting" / "pairs"
    held, trained = (_documents(pairs / "qrels" / f"{split}.tsv") for split in ("dev", "train"))
    assert held and not held & trained
    assert verdict["dense"]["queries"] == len((pairs / "qrels" / "dev.tsv").read_text().splitlines()) - 1
    assert verdict["publish"] is (verdict["dense"]["low"] > 0.0 and verdict["hybrid"]["difference"] >= 0.0)
    assert verdict["says"] in " ".join(done.stderr.split())


def _documents(path: Path) -> set[str]:
    return {line.split("\t")[1] for line in path.read_text().splitlines()[1:]}


def test_a_model_that_is_there_and_documents_without_text_are_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    done = run("--input", source, "--out", tmp_path / "mine")
    assert done.exit_code == 4 and "exists" in done.output
    source.write_text('{"_id": "d", "title": "only a title"}\n')
    done = run("--input", source, "--out", tmp_path / "other")
    assert done.exit_code == 2 and "no document with text in text" in done.output
    assert not list(tmp_path.glob("other*"))


def test_the_recipe_is_adapt_toml_for_towers_of_the_models_shape() -> None:
    model, default = Model.open(default_model()), adapt.AdaptOptions(source=Path("d.jsonl"), out=Path("m"))
    expected = {
        "name": "adapt",
        "seed": 4,
        "document_tokens": 160,
        "towers": {
            "init_layers": (0, 1, 2),
            "document_layers": (0, 1, 2, 3, 4, 5),
            "weight_form": "log",
            "pooling": "weighted",
            "train_words": False,
        },
        "objective": {
            "kind": "softmax",
            "temperature": 0.05,
            "distill_weight": 5.0,
            "list_weight": 1.0,
            "list_lexical": 1.0,
        },
        "optimizer": {
            "batch_size": 64,
            "epochs": 3,
            "max_steps": 7,
            "learning_rate": 1e-4,
            "warmup": 0.1,
            "precision": "bf16",
        },
    }
    assert adapt_config(model, 7, default.seed) == TrainConfig.model_validate(expected)


@pytest.fixture
def judged(source: Path, tmp_path: Path) -> Path:
    """The documents, and a judged query for each."""
    folder = tmp_path / "judged"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(source.read_bytes())
    queries = [{"_id": f"q{each['_id']}", "text": f"{each['title']} food"} for each in DOCUMENTS]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    rows = "".join(f"q{each['_id']}\t{each['_id']}\t1\n" for each in DOCUMENTS)
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


def test_a_model_that_is_clearly_worse_is_not_written_nor_one_that_8_bits_do_not_hold(
    source: Path, judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer of noise stands for a training that went wrong; the gate sees it, --force writes it all the same, with float weights."""

    def spoil(towers: Source, out: Path, how: Quantization, *rest: Any, **named: Any) -> dict[str, Any]:
        if how == "int8":
            raise ExportError("mean cosine 0.98 (at least 0.99)")
        with torch.no_grad():
            towers.towers.document.layers[0].inner.weight.normal_(std=1.0)  # type: ignore[union-attr]
        return export_model(towers, out, how, *rest, **named)

    monkeypatch.setattr(adapt, "export_model", spoil)
    call = (
        "--input",
        source,
        "--out",
        tmp_path / "mine",
        "--max-steps",
        1,
        "--threads",
        1,
        "--judged",
        judged,
    )
    done = run(*call)
    assert done.exit_code == GateError.exit_code, done.output
    assert "writing float weights instead" in done.output
    assert "worse, do not use it" in " ".join(done.output.split()) and not (tmp_path / "mine").exists()
    assert (tmp_path / "mine.adapting" / "model" / "mine" / "manifest.json").is_file()
    forced = run(*call, "--force")
    assert forced.exit_code == 0 and Model.open(tmp_path / "mine")
    assert json.loads(forced.stdout)["precision"] == "none"
    assert not (tmp_path / "mine.adapting").exists()


def test_a_model_compared_with_itself_is_no_gain(judged: Path, tmp_path: Path) -> None:
    model = Model.open(default_model())
    folder = judging_folder(judged, "dev", tmp_path / "sample", 0)
    verdict = judge_adapted(model, model, folder, "dev", "judged queries", 1)
    assert not verdict.publish and not verdict.worse and "no clear gain" in verdict.says
    assert verdict.comparisons["dense"].difference == 0.0


def test_clicked_queries_judge_alone_where_there_are_enough(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()

    def write(clicked: int) -> None:
        kinds = ["clicked"] * clicked + ["title"] * 20
        lines = [
            json.dumps({"_id": f"s{number}", "text": "x", "kind": kind}) for number, kind in enumerate(kinds)
        ]
        (tmp_path / "queries.jsonl").write_text("\n".join(lines) + "\n")
        rows = "".join(f"s{number}\td{number}\t1\n" for number in range(len(kinds)))
        (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)

    write(MIN_CLICKED - 1)
    assert not clicked_only(tmp_path)
    assert len((tmp_path / "qrels" / "dev.tsv").read_text().splitlines()) == MIN_CLICKED + 20
    write(MIN_CLICKED)
    for _ in range(2):  # a call that was stopped comes again
        assert clicked_only(tmp_path)
        assert len((tmp_path / "qrels" / "dev.tsv").read_text().splitlines()) == MIN_CLICKED + 1
