"""`glow adapt`: documents alone become a model that builds an index; a stopped call goes on; what cannot be is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from glow.artifact import default_model
from glow.errors import ExportError
from glow.runtime import Model
from glow.training import TrainConfig
from glow_model_export import adapt
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
    """The shipped model, one step; an export that is refused stands for whatever ends the first call after training."""
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


def test_towers_that_8_bits_do_not_hold_are_written_as_they_are(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_8_bits(
        towers: Source, out: Path, how: Quantization, *rest: Any, **named: Any
    ) -> dict[str, Any]:
        if how == "int8":
            raise ExportError("mean cosine 0.98 (at least 0.99)")
        return export_model(towers, out, how, *rest, **named)

    monkeypatch.setattr(adapt, "export_model", refuse_8_bits)
    done = run("--input", source, "--out", tmp_path / "mine", "--max-steps", 1, "--threads", 1)
    assert done.exit_code == 0, done.output
    assert "writing float weights instead" in done.output
    assert json.loads(done.stdout)["precision"] == "none"
    assert (
        Model.open(tmp_path / "mine").preprocessor.schema == Model.open(default_model()).preprocessor.schema
    )
    assert not (tmp_path / "mine.adapting").exists()


def test_a_model_that_is_there_and_documents_without_text_are_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    done = run("--input", source, "--out", tmp_path / "mine")
    assert done.exit_code == 4 and "exists" in done.output
    source.write_text('{"_id": "d", "title": "only a title"}\n')
    done = run("--input", source, "--out", tmp_path / "other")
    assert done.exit_code == 2 and "no document with text in text" in done.output
    assert not list(tmp_path.glob("other*"))


def test_the_recipe_is_that_of_the_configuration_file() -> None:
    recipe = TrainConfig.load_toml(Path("configs/adapt.toml"))
    options = adapt.AdaptOptions(source=Path("d.jsonl"), out=Path("m"), max_steps=7)
    config = adapt._config(Model.open(default_model()), options)
    assert config.objective == recipe.objective and config.seed == recipe.seed
    assert config.optimizer == recipe.optimizer.model_copy(update={"max_steps": 7})
    assert config.towers == recipe.towers.model_copy(update={"init_layers": (0, 1, 2)})
