"""Datasets of ir_datasets by name, as data directories: `irds:beir/scifact/test` (extra `ir-datasets`)."""

import importlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from glow.artifact import discard, folder_for, is_temporary, set_aside_abandoned, sync
from glow.errors import DependencyError, InputError
from glow.evaluation.foreign_folder import FolderWriter

__all__ = ["IRDS", "data_folder", "fetch"]

IRDS = "irds:"


def data_folder(data: Path, splits: Iterable[str], cache: Path | None = None) -> Path:
    """A data directory; a dataset of ir_datasets is fetched and written first.

    The dataset's judgments serve as every requested split, because its name already selects them.

    Args:
        data: a directory, or `irds:NAME`.
        splits: names to give its judgments.
        cache: directory of fetched data; default: `glow/irds` of the user's cache.

    Raises:
        GlowError: as `fetch`.
    """
    name = str(data)
    if not name.startswith(IRDS):
        return data
    home = cache or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "glow" / "irds"
    folder = home / re.sub(r"[^A-Za-z0-9._-]", "_", name.removeprefix(IRDS))
    if not folder.is_dir():
        fetch([name], folder, with_candidates=False)
    rows = (folder / "qrels" / f"{_split(name)}.tsv").read_bytes()
    for split in splits:
        (folder / "qrels" / f"{split}.tsv").write_bytes(rows)
    return folder


def fetch(names: Sequence[str], out: Path, *, with_candidates: bool = True) -> dict[str, int]:
    """Writes datasets that share their documents as one data directory, which appears when it is complete.

    Args:
        names: `irds:NAME`, one or more; the last part of a name is its split.
        out: the directory to create; it must not exist.
        with_candidates: whether to write a dataset's rankings as candidates and hard negatives.

    Returns:
        Numbers written by kind: documents, queries, rejects and, for each split, judgments, candidates, negatives.

    Raises:
        DependencyError: if ir_datasets is not installed.
        InputError: if a name is unknown, lacks documents, queries or judgments, or cannot be read; or if `out` exists or
            cannot be written.
    """
    if out.exists():
        raise InputError(f"{out} exists already; remove it or choose another --out")
    found = {_split(name): _load(name) for name in names}
    if len(found) < len(names):
        raise InputError(f"two of {', '.join(names)} have the same split; fetch them into two folders")
    first, *others = found.values()
    if any(other.docs_handler() is not first.docs_handler() for other in others):
        raise InputError(f"{', '.join(names)} do not share their documents; fetch them into several folders")
    try:
        _remove_abandoned(out)
        with folder_for(out) as part:
            writer = FolderWriter(part, out.name)
            writer.write_documents(first)
            for split, dataset in found.items():
                writer.write_split(split, dataset, with_candidates=with_candidates)
            writer.close()
            for path in [*part.rglob("*"), part]:
                sync(path)
            part.rename(out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}") from error
    return dict(writer.counts)


def _split(name: str) -> str:
    return name.removeprefix(IRDS).rpartition("/")[2]


def _load(name: str) -> Any:
    if not name.startswith(IRDS):
        raise InputError(f"expected {IRDS}NAME, a dataset of ir_datasets, found {name!r}")
    try:
        library = importlib.import_module("ir_datasets")
    except ImportError as error:
        raise DependencyError(
            f"{name} needs the package ir_datasets: install the extra `ir-datasets` (pip install 'glow-retrieval[ir-datasets]')"
        ) from error
    try:
        found = library.load(name.removeprefix(IRDS))
    except KeyError as error:
        raise InputError(
            f"ir_datasets does not know {name.removeprefix(IRDS)!r}; https://ir-datasets.com lists its names"
        ) from error
    missing = [part for part in ("docs", "queries", "qrels") if not getattr(found, f"has_{part}")()]
    if missing:
        raise InputError(f"{name} has no {' and no '.join(missing)}; name one of its subsets")
    return found


def _remove_abandoned(out: Path) -> None:
    """Removes the remains of a killed call beside `out`."""
    for path in out.parent.glob(".*"):
        if path.name.startswith(f".{out.name}-") and is_temporary(path):
            aside = set_aside_abandoned(path)
            if aside is not None:
                discard(aside)
