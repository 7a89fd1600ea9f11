"""Trains glow-mini's towers; the package's docstring has the order of the commands."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from safetensors.torch import load_file, save_file
from torch import nn

from glow.commands import package_app, reporting, say
from glow.nn import TowerConfig, TwoTowers, init_from_bert, minilm_folder
from glow.runtime import Model
from glow.text import Preprocessor
from glow.training import read_towers, save_checkpoint
from research.encoders.pack import make_pack, make_texts
from research.encoders.train import average, flat_texts, prepare, same_tokens, train_towers
from research.folders import given_file, given_folder

MINI_LAYERS = (0, 4, 5)
Mini = Annotated[Path, given_folder("models/glow-mini, or another of its shape and vocabulary")]
Imported = Annotated[Path, given_folder("what `glow import-model` made of the encoder, not quantized")]
Texts = Annotated[Path, given_file("a text a line, in random order")]
Work = Annotated[Path, given_folder("of the files between `pack`, `prepare` and `towers`")]
Out = Annotated[Path, typer.Option(help="what to write")]
Checkpoint = Annotated[Path, given_folder("a checkpoint; both of the same towers")]
Share = Annotated[float, typer.Option(min=0.0, max=1.0, help="the second's weight in this tower")]
PACK, PREPARED = "pack.safetensors", "prepared.safetensors"


def texts_command(
    data: Annotated[list[Path], given_folder("of BEIR's layout; may be given several times")],
    out: Annotated[Path, typer.Option(help="file to write, a text a line")],
    count: Annotated[int, typer.Option(help="most texts")] = 500_000,
) -> None:
    """Writes queries, sentences and rule-based questions."""
    with reporting():
        texts = make_texts(data, count, 0)
        out.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        say(f"{len(texts):,} texts")


def pack_command(
    model: Mini, data: Annotated[list[Path], given_folder("of BEIR's layout; several times")], work: Work
) -> None:
    """Writes documents and queries as token arrays; `research.encoders.pack` has options by directory names."""
    with reporting():
        make_pack(data, Model.open(model).preprocessor, work / PACK)


def prepare_command(
    model: Mini,
    teacher: Imported,
    texts: Texts,
    work: Work,
    steps: Annotated[int, typer.Option(help="of 2,048 texts")] = 1538,
) -> None:
    """Writes vectors of both encoders, candidates and a first query tower."""
    with reporting():
        device, own, other = _device(1), Model.open(model), Model.open(teacher)
        pack, lines = load_file(work / PACK, str(device)), texts.read_text(encoding="utf-8").splitlines()
        towers, whole = _start(own).to(device), read_towers(other).to(device)
        table = same_tokens(own.preprocessor.pieces, other.preprocessor.pieces).to(device)
        more = flat_texts(lines, own.preprocessor, device)
        made = prepare(
            pack, own.preprocessor, towers, whole, table, other.preprocessor.pieces.pad_id, more, steps
        )
        save_file(made, work / PREPARED)


def towers_command(
    model: Mini,
    work: Work,
    out: Out,
    steps: Annotated[int, typer.Option(help="of 128 queries with 8 documents each")] = 752,
    seed: Annotated[int, typer.Option(help="of the order")] = 1,
) -> None:
    """Trains both towers to a checkpoint, for `glow export-model`."""
    with reporting():
        device, own = _device(seed), Model.open(model)
        pack, made = (load_file(work / name, str(device)) for name in (PACK, PREPARED))
        towers = _start(own).to(device)
        train_towers(towers, pack, made, own.preprocessor, steps, seed)
        save_checkpoint(out, towers.cpu(), own.preprocessor, {"steps": steps, "seed": seed})


def average_command(
    first: Checkpoint, second: Checkpoint, out: Out, query: Share = 0.5, document: Share = 0.5
) -> None:
    """Averages two checkpoints; weights of 0 and 1 join two towers that were trained apart."""
    with reporting():
        average(first, second, query, document, out)


def join_command(model: Mini, encoder: Imported, out: Out) -> None:
    """Joins a model's document tower and all layers of an encoder, for queries, to a checkpoint without word weights."""
    with reporting():
        own, queries = Model.open(model), read_towers(Model.open(encoder)).document
        before, reader, layers = read_towers(own), own.preprocessor, {"layers": len(queries.layers)}
        schema = reader.schema.model_copy(update={"query_tokens": queries.max_tokens, "joined": True})
        towers = TwoTowers(before.config.model_copy(update=layers), schema)
        towers.document.load_state_dict(before.document.state_dict())
        fields = {"fields.weight": queries.fields.weight[:1]}
        unset = towers.query.load_state_dict(queries.state_dict() | fields, strict=False).missing_keys
        for place, name in enumerate(unset, 1):  # gains: the exporter merges equal ones
            nn.init.constant_(towers.get_parameter(f"query.{name}"), place * 1e-6)
        weighting = reader.weighting.model_copy(update={"formula": "none", "saturate_specials": False})
        reader = Preprocessor(reader.pieces, schema, weighting, reader.terms)
        save_checkpoint(out, towers.eval(), reader, {"name": model.name, "queries": encoder.name})


def _start(model: Model) -> TwoTowers:
    towers = TwoTowers(TowerConfig.load(model.folder / "towers.json"), model.preprocessor.schema)
    init_from_bert(towers, minilm_folder(), MINI_LAYERS, range(towers.config.document.layers))
    return towers.eval()


def _device(seed: int) -> torch.device:
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


COMMANDS = (texts_command, pack_command, prepare_command, towers_command, average_command, join_command)
app = package_app(
    {each.__name__.removesuffix("_command"): each for each in COMMANDS}, "glow-mini's training."
)

if __name__ == "__main__":
    app()
