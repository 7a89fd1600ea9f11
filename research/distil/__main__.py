"""Texts for `glow distil`, and a comparison of the layers that queries keep.

python -m research distil texts --data FOLDER --out texts.txt
python -m research distil layers --model IMPORTED --texts texts.txt --layers 0,4,5 --layers 0,2,5 --out runs/layers
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from glow.commands import package_app, reporting, say
from glow.runtime import Model
from research.distil.layers import try_layers
from research.distil.texts import make_texts
from research.folders import given_file, given_folder


def texts_command(
    data: Annotated[list[Path], given_folder("of BEIR's layout; may be given several times")],
    out: Annotated[Path, typer.Option(help="file to write, a text a line")],
    count: Annotated[int, typer.Option(help="most texts")] = 500_000,
    seed: Annotated[int, typer.Option(help="of the draw")] = 0,
) -> None:
    """Writes queries, sentences and rule-based questions."""
    with reporting():
        texts = make_texts(data, count, seed)
        out.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        say(f"{len(texts):,} texts")


def layers_command(
    model: Annotated[Path, given_folder("what `glow import-model` made")],
    texts: Annotated[Path, given_file("a text a line")],
    layers: Annotated[list[str], typer.Option(help="such as 0,4,5; may be given several times")],
    out: Annotated[Path, typer.Option(help="folder for vectors and runs")],
    epochs: Annotated[int, typer.Option(help="of each run, over the texts")] = 1,
    seed: Annotated[int, typer.Option(help="of each run")] = 0,
) -> None:
    """Trains a query tower from each choice of layers, and writes its held-out cosine to results.json."""
    with reporting():
        lines = texts.read_text(encoding="utf-8").splitlines()
        choices = [[int(part) for part in choice.split(",")] for choice in layers]
        out.mkdir(parents=True, exist_ok=True)
        found = try_layers(Model.open(model), lines, choices, epochs, out, seed)
        (out / "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


app = package_app(
    {"texts": texts_command, "layers": layers_command}, "Texts and layers of fast query towers."
)

if __name__ == "__main__":
    app()
