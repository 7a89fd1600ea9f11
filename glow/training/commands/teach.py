"""`glow teach`: stores a teacher's vectors of data directories; the same call resumes a stopped one."""

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
    """The teacher and its texts."""

    teacher: str = option(
        ...,
        "Teacher: a sentence-transformers or BERT directory, model, checkpoint, or MODULE:FUNCTION that returns vectors of texts.",
        metavar="TEACHER",
    )
    data: tuple[Path, ...] = option(
        (), "Data directory, whose documents and queries are encoded; repeatable.", metavar="DIR"
    )
    out: Path = option(..., "Directory of the vectors; existing ones are kept.", metavar="DIR")
    fields: str = option("glow-default", "Schema preset with the text fields.")
    threads: int = option(0, "CPU threads; 0: all cores.", ge=0)


@command(TeachOptions)
def teach_command(options: TeachOptions) -> None:
    """Makes a teacher's vectors, for `glow train --teacher`."""
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
