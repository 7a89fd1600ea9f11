"""The command `attention`: which words towers look at, as a table and as a picture."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from glow.artifact import default_model
from glow.commands import reporting, room_app, write_text
from research.attention.report import draw_study, study_markdown
from research.attention.studied import Choice, Side, open_studied, read_texts
from research.attention.study import Rows, StudyOptions, study

__all__ = ["attention_command"]


def attention_command(
    data: Annotated[Path, typer.Option(help="BEIR-style folder; idf comes from its corpus.")],
    model: Annotated[
        list[Path] | None,
        typer.Option(help="Model or checkpoint folder, several times; default: what models/DEFAULT names."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of the judgements to draw texts from.")] = "dev",
    side: Annotated[Side, typer.Option(help="What to look at, each by its own tower.")] = "document",
    ids: Annotated[str, typer.Option(help="Ids of texts, by commas, in place of a draw.")] = "",
    count: Annotated[int, typer.Option(min=1, help="Texts to draw.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    rows: Annotated[
        Rows, typer.Option(help="Whose attention counts, or `states`: the paper's inner products.")
    ] = "cls",
    top: Annotated[int, typer.Option(min=1, max=50, help="Words a text.")] = 5,
    specials: Annotated[
        bool, typer.Option("--specials", help="Count [CLS], [SEP] and punctuation as words.")
    ] = False,
    markdown: Annotated[Path, typer.Option(help="File of the table; `-` is standard output.")] = Path("-"),
    picture: Annotated[Path | None, typer.Option(help="PNG file of the bars.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 takes all cores.")] = 0,
) -> None:
    """Show the words that one or more models look at most in a few texts."""
    if threads:
        torch.set_num_threads(threads)

    with reporting():
        models = open_studied(model or [default_model()])
        fields = list(dict.fromkeys(name for item in models for name in item.preprocessor.schema.names))
        wanted = tuple(part.strip() for part in ids.split(",") if part.strip())
        corpus, texts = read_texts(data, fields, Choice(side, split, wanted, count, seed))
        options = StudyOptions(rows, top, specials)
        found = study(models, corpus, texts, options)
        if picture is not None:
            draw_study(found, options, side, picture)
        write_text(markdown, study_markdown(found, models, options, side))


app = room_app({"attention": attention_command}, "Which words towers look at.")

if __name__ == "__main__":
    typer.run(attention_command)
