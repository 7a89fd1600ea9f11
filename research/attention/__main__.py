"""Shows which words the towers attend to, as a table and as a picture (docs/results/quality.md)."""

import sys
from pathlib import Path
from typing import Annotated

import torch
import typer

from glow.artifact import default_model
from glow.commands import package_app, reporting
from research.attention.report import draw_study, study_markdown
from research.attention.studied import open_studied, read_texts
from research.attention.study import Rows, study
from research.folders import given_folder

__all__ = ["attention_command"]


def attention_command(
    data: Annotated[Path, given_folder("BEIR-style folder; idf comes from its corpus.")],
    model: Annotated[
        list[Path] | None,
        given_folder("Model or checkpoint folder, several times; default: what models/DEFAULT names."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the qrels to draw documents from.")] = "dev",
    count: Annotated[int, typer.Option(min=1, help="Documents to draw.")] = 5,
    rows: Annotated[
        Rows, typer.Option(help="Whose attention counts, or `states`: the paper's inner products.")
    ] = "cls",
    picture: Annotated[Path | None, typer.Option(help="PNG file of the bars.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 takes all cores.")] = 0,
) -> None:
    """Show the words that one or more models look at most in a few documents."""
    if threads:
        torch.set_num_threads(threads)
    with reporting():
        models = open_studied(model or [default_model()])
        fields = list(dict.fromkeys(name for item in models for name in item.preprocessor.schema.names))
        corpus, texts = read_texts(data, fields, split, count)
        found = study(models, corpus, texts, rows)
        if picture is not None:
            draw_study(found, rows, picture)
        sys.stdout.write(study_markdown(found, models, rows))


app = package_app({"attention": attention_command}, "Which words towers look at.")

if __name__ == "__main__":
    app()
