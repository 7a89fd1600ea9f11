"""Experiments on the score of hybrid search, step by step (docs/results/quality.md).

python -m research ranking nothing --collections DATA --out NOTHING
python -m research ranking columns --collections DATA --indices INDICES --work WORK --split dev
python -m research ranking columns --collections NOTHING --indices INDICES --work WORK/nothing
python -m research ranking report --work WORK --json FILE
python -m research ranking calibrate --work WORK --model MODEL --out NEW_MODEL
"""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from glow.artifact import CALIBRATION_FILE, verify, write_artifact
from glow.commands import package_app, reporting, say
from research.folders import given_folder
from research.ranking.calibrate import Hits, Kind, calibrated, hits_of, left_out
from research.ranking.columns import gather_columns, open_columns
from research.ranking.forms import compare
from research.ranking.nothing import write_nothing

Data = Annotated[Path, given_folder("Holds a folder for each collection.")]
Work = Annotated[Path, given_folder("Folder of columns, those of `nothing` in its folder `nothing`.")]
KINDS: tuple[Kind, ...] = ("with_late", "without_late")


def nothing_command(collections: Data, out: Annotated[Path, typer.Option(help="Where to write.")]) -> None:
    """Write queries that nothing answers."""
    write_nothing({folder.name: folder for folder in collections.iterdir()}, out)


def columns_command(
    collections: Data,
    indices: Annotated[Path, given_folder("Holds an index root for each collection.")],
    work: Annotated[Path, typer.Option(help="Where columns go.")],
    split: Annotated[str, typer.Option(help="Whose queries are searched.")] = "dev",
) -> None:
    """Search with both heads and keep all columns of what they find."""
    with reporting():
        for folder in sorted(collections.iterdir()):
            count = gather_columns(folder.name, folder, indices / folder.name, work, split)
            say(f"{folder.name}: {count} queries")


def report_command(work: Work, json_file: Annotated[Path, typer.Option("--json", help="Report.")]) -> None:
    """Compare forms of the sum, and measure probabilities on left-out datasets."""
    report = {"forms": compare({name: open_columns(name, work) for name in _names(work)})}
    report |= {kind: left_out(_hits(work, kind), _hits(work / "nothing", kind)) for kind in KINDS}
    json_file.write_text(json.dumps(report, indent=1) + "\n")


def calibrate_command(
    work: Work,
    model: Annotated[Path, given_folder("The model of the indices that were searched.")],
    out: Annotated[Path, typer.Option(help="Model folder to make, with the calibration.")],
) -> None:
    """Fit the calibration that a model ships with."""
    made = calibrated({kind: (_hits(work, kind), _hits(work / "nothing", kind)) for kind in KINDS})
    with reporting():
        manifest = verify(model, "model")
        with write_artifact(out, "model") as writer:
            shutil.copytree(model, writer.folder, dirs_exist_ok=True)
            made.save(writer.folder / CALIBRATION_FILE)
            writer.parents, writer.parameters = manifest.parents, dict(manifest.parameters)
            writer.counts, writer.hashes = dict(manifest.counts), dict(manifest.hashes)
    say(made.model_dump_json(indent=1))


def _names(work: Path) -> list[str]:
    return [path.name.removesuffix(".dev.npz") for path in sorted(work.glob("*.dev.npz"))]


def _hits(work: Path, kind: Kind) -> dict[str, Hits]:
    return {name: hits_of(open_columns(name, work), kind) for name in _names(work)}


app = package_app(
    {
        "nothing": nothing_command,
        "columns": columns_command,
        "report": report_command,
        "calibrate": calibrate_command,
    },
    "Experiments on hybrid search's score.",
)

if __name__ == "__main__":
    app()
