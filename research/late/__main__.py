"""Experiments on late interaction, step by step (docs/results/late-interaction.md).

python -m research late collections --packages UNPACKED --out DATA      # and `glow build --index flat` for each
python -m research late states --collections DATA --indices INDICES --work WORK
python -m research late columns --work WORK
python -m research late report --work WORK --json FILE
"""

import gzip
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from glow.artifact import default_model
from glow.commands import reporting, room_app, say
from glow.runtime import Model
from research.folders import given_folder
from research.late.candidates import encode_documents, gather_states, open_found
from research.late.collections import COLLECTIONS, write_collections
from research.late.forms import FORMS, PROJECTION, REFERENCE, column, fit, load_projection, make_columns
from research.late.sums import compare_sums
from research.late.tokens_kept import bytes_of_forms, query_weights

Data = Annotated[Path, given_folder("Holds tldr and medquad.", envvar="GLOW_DATA")]
Work = Annotated[Path, given_folder("Folder of states and columns; gigabytes.")]
CHOSEN = next(form for form in FORMS if form.name == "128x1-all-words")


def collections_command(
    data: Data,
    packages: Annotated[
        Path, given_folder("Holds a folder for each Debian package, as `dpkg -x` leaves it.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write the collections.")],
) -> None:
    """Write the collections: documents, queries and judgements."""
    for name, (documents, queries) in write_collections(data, packages, out).items():
        say(f"{name}: {documents:,} documents, {queries:,} queries")


def states_command(
    data: Data,
    collections: Annotated[Path, given_folder("What `collections` wrote.")],
    indices: Annotated[Path, given_folder("Holds an index root for each collection.")],
    work: Annotated[Path, typer.Option(help="Folder of states and columns, made if missing; gigabytes.")],
) -> None:
    """Fit the projection, search with both heads, and keep the token states of queries and documents."""
    with reporting():
        model = Model.open(default_model())
        if not (work / PROJECTION).exists():
            fit(data, model, work)
        for name in COLLECTIONS:
            gather_states(name, collections / name, indices / name, model, work, "dev")
            encode_documents(name, indices / name, model, work)
            say(name)


def columns_command(work: Work) -> None:
    """Score every candidate by late interaction in every form."""
    projection = load_projection(work)
    for form in FORMS:
        for name in COLLECTIONS:
            make_columns(form, open_found(name, work), projection, work)
        say(form.name)


def report_command(
    work: Work,
    json_file: Annotated[
        Path, typer.Option("--json", help="Report; figures of every query go beside it, `.queries.json.gz`.")
    ],
) -> None:
    """Run the experiments over the columns; query tokens count the same in all but the first."""
    found = {name: open_found(name, work) for name in COLLECTIONS}
    report: dict[str, Any] = {
        "query weights": query_weights(found, work, [FORMS[0], REFERENCE, CHOSEN]),
        "bytes": bytes_of_forms(found, work),
    }
    queries: dict[str, Any] = {}
    for each in (CHOSEN, REFERENCE):
        late = {name: column(each, name, work) for name in found}
        report[each.name], queries[each.name] = compare_sums(found, late)
    json_file.write_text(json.dumps(report, indent=1) + "\n")
    with gzip.GzipFile(json_file.with_suffix(".queries.json.gz"), "wb", mtime=0) as file:
        file.write(json.dumps(queries).encode())


app = room_app(
    {
        "collections": collections_command,
        "states": states_command,
        "columns": columns_command,
        "report": report_command,
    },
    "Experiments on late interaction.",
)

if __name__ == "__main__":
    app()
