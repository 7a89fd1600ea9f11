"""`glow teach`: a teacher's vectors of data folders, made once; the same call goes on where a stopped one was."""

import sys
from pathlib import Path

import torch

from glow.collection import read_documents, read_queries
from glow.commands import command, option, progress, say
from glow.errors import ConfigError
from glow.options import StrictModel
from glow.schema import FieldSchema
from glow.training.teacher import make_vectors, open_teacher

__all__ = ["TeachOptions", "teach_command"]


class TeachOptions(StrictModel):
    """Who teaches, and of which texts."""

    teacher: str = option(
        ...,
        "A sentence-transformers or BERT-layout folder, a model or checkpoint, or MODULE:FUNCTION that makes vectors of a list of texts.",
        metavar="TEACHER",
    )
    data: tuple[Path, ...] = option(
        (), "Data folder: its documents and all its queries; may be given several times.", metavar="DIR"
    )
    out: Path = option(..., "Folder of the vectors; what it holds already is not made again.", metavar="DIR")
    fields: str = option("glow-default", "Schema preset that names the text fields.")
    threads: int = option(0, "CPU threads; 0 takes all cores.", ge=0)


@command(TeachOptions)
def teach_command(options: TeachOptions) -> None:
    """Makes the vectors of a teacher that `glow train --teacher` distils from."""
    if not options.data:
        raise ConfigError("there is nothing to encode; give --data")
    if options.threads:
        torch.set_num_threads(options.threads)
    names = FieldSchema.preset(options.fields).names
    documents = [each for folder in options.data for each in read_documents(folder / "corpus.jsonl", names)]
    queries = [each.text for folder in options.data for each in read_queries(folder / "queries.jsonl")]
    teacher = open_teacher(options.teacher, None, documents)
    with progress(sys.stderr, "encoding", len(documents) + len(queries), "texts") as advance:
        made = make_vectors(teacher, queries, documents, options.out, advance)
    say(f"{options.out}: {len(made):,} vectors of {made.width} numbers")
