"""Experiments on late interaction, step by step (docs/results/late-interaction.md).

python -m research.late collections --packages UNPACKED --out DATA      # and `glow build --index flat` for each
python -m research.late states --collections DATA --indices INDICES --work WORK
python -m research.late columns --work WORK
python -m research.late report --work WORK --json FILE
"""

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from glow.artifact import default_model
from glow.commands import reporting, room_app
from glow.runtime import Model
from research.late.candidates import encode_documents, gather, open_candidates
from research.late.collections import COLLECTIONS, write_collections
from research.late.forms import FORMS, PROJECTION, REFERENCE, column, fit, load_projection, make_columns
from research.late.ranking import Weights
from research.late.sums import compare_sums, measure_settings
from research.late.tokens import Form
from research.late.tokens_kept import bytes_of_forms, query_weights

Data = Annotated[Path, typer.Option(envvar="GLOW_DATA", help="Holds tldr and medquad.")]
Work = Annotated[Path, typer.Option(help="Folder of states and columns; gigabytes.")]
Only = Annotated[str, typer.Option(help="Names of collections with commas between.")]
Report = Annotated[
    Path, typer.Option("--json", help="Report; figures of every query go beside it, `.queries.json.gz`.")
]
FormName = Annotated[str, typer.Option(help="How tokens are kept, by the name of a form.")]
ALL = ",".join(COLLECTIONS)


def collections_command(
    data: Data,
    packages: Annotated[
        Path, typer.Option(help="Holds a folder for each Debian package, as `dpkg -x` leaves it.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write the collections.")],
) -> None:
    """Write the collections: documents, queries and judgements."""
    for name, (documents, queries) in write_collections(data, packages, out).items():
        _say(f"{name}: {documents:,} documents, {queries:,} queries")


def states_command(
    data: Data,
    collections: Annotated[Path, typer.Option(help="What `collections` wrote.")],
    indices: Annotated[Path, typer.Option(help="Holds an index root for each collection.")],
    work: Work,
    only: Only = ALL,
    split: Annotated[str, typer.Option(help="Whose queries are searched.")] = "dev",
    model: Annotated[
        Path | None, typer.Option(help="Model folder; default: what models/DEFAULT names.")
    ] = None,
) -> None:
    """Fit the projection, search with both heads, and keep the token states of queries and documents."""
    with reporting():
        opened = Model.open(model or default_model())
        if not (work / PROJECTION).exists():
            fit(data, opened, work)
        for name in only.split(","):
            gather(name, collections / name, indices / name, opened, work, split)
            encode_documents(name, indices / name, opened, work)
            _say(name)


def columns_command(
    work: Work,
    only: Only = ALL,
    forms: Annotated[str, typer.Option(help="Names of forms with commas between; default: all.")] = "",
) -> None:
    """Score every candidate by late interaction in every form."""
    projection = load_projection(work)
    for form in [_form(name) for name in forms.split(",")] if forms else FORMS:
        for name in only.split(","):
            make_columns(form, open_candidates(name, work), projection, work)
        _say(form.name)


def report_command(
    work: Work,
    json_file: Report,
    form: FormName = "128x1-all-words",
    only: Only = ALL,
) -> None:
    """Run the experiments over the columns that are there; query tokens count the same in all but the first."""
    found = {name: open_candidates(name, work) for name in only.split(",")}
    chosen = _form(form)
    report: dict[str, Any] = {
        "query weights": query_weights(found, work, [FORMS[0], REFERENCE, chosen]),
        "bytes": bytes_of_forms(found, work),
    }
    queries: dict[str, Any] = {}
    for each in (chosen, REFERENCE):
        late = {name: column(each, name, work) for name in found}
        report[each.name], queries[each.name] = compare_sums(found, late)
    _write(json_file, report, queries)


def settings_command(
    work: Work,
    json_file: Report,
    only: Only,
    late: Annotated[float, typer.Option(help="Weight of late interaction in the dense column, 0 to 1.")],
    words: Annotated[float, typer.Option(help="Weight of words times uncertainty.")],
    words_alone: Annotated[float, typer.Option(help="The same without late interaction.")],
    form: FormName = "128x1-all-words",
    coverage: Annotated[
        bool, typer.Option(help="Whether words count by the share of the query that they cover.")
    ] = True,
) -> None:
    """Measure weights that were chosen on other collections, or a sum that is served."""
    found = {name: open_candidates(name, work) for name in only.split(",")}
    if not coverage:
        found = {name: replace(each, covered=np.ones_like(each.covered)) for name, each in found.items()}
    columns = {name: column(_form(form), name, work) for name in found}
    settings = {
        "sum, uncertainty": Weights(late, words),
        "cosine + words, uncertainty": Weights(0.0, words_alone),
    }
    _write(json_file, *measure_settings(found, columns, settings))


def _form(name: str) -> Form:
    return next(form for form in FORMS if form.name == name)


def _write(path: Path, report: dict[str, Any], queries: dict[str, Any]) -> None:
    path.write_text(json.dumps(report, indent=1) + "\n")
    with gzip.GzipFile(path.with_suffix(".queries.json.gz"), "wb", mtime=0) as file:
        file.write(json.dumps(queries).encode())


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


app = room_app(
    {
        "collections": collections_command,
        "states": states_command,
        "columns": columns_command,
        "report": report_command,
        "settings": settings_command,
    },
    "Experiments on late interaction.",
)

if __name__ == "__main__":
    app()
