"""The datasets that late interaction was measured on, and its token projection (docs/results/quality.md).

python -m research late collections --packages UNPACKED --out DATA      # and `glow build --index flat` for each
python -m research late directions --work WORK --out FILE.npy
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from glow.artifact import default_model
from glow.commands import package_app, reporting, say
from glow.runtime import Model
from research.folders import given_folder
from research.late.collections import write_collections
from research.late.directions import fit_directions

Data = Annotated[Path, given_folder("Holds tldr and medquad.", envvar="GLOW_DATA")]


def collections_command(
    data: Data,
    packages: Annotated[
        Path, given_folder("Holds a folder for each Debian package, as `dpkg -x` leaves it.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write the collections.")],
) -> None:
    """Write the collections: documents, queries and relevance judgments."""
    for name, (documents, queries) in write_collections(data, packages, out).items():
        say(f"{name}: {documents:,} documents, {queries:,} queries")


def directions_command(
    data: Data,
    work: Annotated[Path, typer.Option(help="Folder for copies of the towers.")],
    out: Annotated[Path, typer.Option(help="Float32 array, a direction a column, best first.")],
) -> None:
    """Fit the directions that tokens are projected to, over training queries and what answers them."""
    with reporting():
        np.save(out, fit_directions(data, Model.open(default_model()), work))


app = package_app(
    {"collections": collections_command, "directions": directions_command},
    "What late interaction was measured on.",
)

if __name__ == "__main__":
    app()
