"""`glow fetch`: a dataset of ir_datasets as a data directory."""

from pathlib import Path

from glow.commands import command, option, say
from glow.evaluation.foreign_data import fetch
from glow.options import StrictModel

__all__ = ["FetchOptions", "fetch_command"]


class FetchOptions(StrictModel):
    """What to fetch, and the folder to write."""

    names: tuple[str, ...] = option(
        ..., "Datasets of ir_datasets with the same documents.", is_argument=True, metavar="irds:NAME..."
    )
    out: Path = option(..., "Data directory to write; it must not exist.", metavar="DIR")


@command(FetchOptions)
def fetch_command(options: FetchOptions) -> None:
    """Fetches datasets of ir_datasets and writes them as one data directory."""
    counts = fetch(options.names, options.out)
    say(f"{options.out}: " + ", ".join(f"{count:,} {kind}" for kind, count in counts.items()))
