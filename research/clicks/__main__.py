"""Simulated users, and controls for learning from their clicks (docs/results/quality.md).

python -m research clicks simulate --data $DATA/tldr --index-root INDEX --rankings FILE --out LOGS      # then `glow learn-clicks`
python -m research clicks corpus --data $DATA/tldr --documents OUT/documents.jsonl --out FILE
python -m research clicks pairs --data $DATA/tldr --like OUT/train --out FOLDER
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from glow.commands import package_app
from research.clicks.controls import learned_queries, shuffled, true_pairs, true_queries, write_corpus
from research.clicks.simulate import simulate
from research.folders import given_file, given_folder, read_records

Data = Annotated[Path, given_folder("Folder of tldr.")]
Out = Annotated[Path, typer.Option(help="Where to write.")]
Seed = Annotated[int, typer.Option(help="Of everything drawn.")]


def simulate_command(
    data: Data,
    index_root: Annotated[Path, given_folder("Index root of tldr.")],
    rankings: Annotated[Path, typer.Option(help="Kept for the next seed.")],
    out: Out,
    seed: Seed = 0,
    bot: Annotated[Literal["fast", "slow"] | None, typer.Option(help="A bot among the users.")] = None,
) -> None:
    """Write the two logs that a service would: `queries.jsonl` and `feedback.jsonl`."""
    simulate(data, index_root, rankings, out, seed, bot)


def corpus_command(
    data: Data,
    out: Out,
    documents: Annotated[
        Path | None,
        given_file("`documents.jsonl`, as `glow learn-clicks` wrote it; without it: all train questions."),
    ] = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Those of another document.")] = False,
) -> None:
    """Write the documents with clicked queries."""
    corpus = read_records(data / "corpus.jsonl")
    queries = true_queries(data, corpus) if documents is None else learned_queries(documents)
    write_corpus(corpus, shuffled(queries, corpus) if shuffle else queries, out)


def pairs_command(
    data: Data,
    like: Annotated[Path, given_folder("Training pairs, as `glow learn-clicks` wrote them.")],
    out: Out,
    seed: Seed = 0,
) -> None:
    """Write as many true pairs as clicks found, to train on in place of clicks."""
    true_pairs(data, like, out, seed)


app = package_app(
    {"simulate": simulate_command, "corpus": corpus_command, "pairs": pairs_command},
    "Simulated users, and what their clicks teach.",
)

if __name__ == "__main__":
    app()
