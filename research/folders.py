"""Reads and writes data directories in BEIR's layout for studies, and defines options for required paths."""

import fcntl
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

Record = dict[str, Any]


def given_folder(text: str, **options: Any) -> Any:
    """An option for an existing directory, with this help."""
    return typer.Option(help=text, exists=True, file_okay=False, **options)


def given_file(text: str, **options: Any) -> Any:
    """An option for an existing file, with this help."""
    return typer.Option(help=text, exists=True, dir_okay=False, **options)


def names_among(known: Sequence[str], text: str) -> Any:
    """An option for comma-separated known names, with this help."""

    def check(names: str) -> str:
        if unknown := sorted(set(names.split(",")) - set(known)):
            raise typer.BadParameter(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
        return names

    return typer.Option(help=text, callback=check)


def read_records(path: Path) -> list[Record]:
    """The lines of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_folder(
    folder: Path,
    documents: Iterable[Record],
    queries: Iterable[Record],
    judged: Mapping[str, Mapping[str, Iterable[str]]],
) -> None:
    """Writes documents, queries and judgments of grade 1 (split -> query -> documents); replaces files of an earlier call."""
    for name, records in (("corpus", documents), ("queries", queries)):
        write_lines(folder / f"{name}.jsonl", (json.dumps(each, ensure_ascii=False) for each in records))
    for split, qrels in judged.items():
        rows = (f"{query}\t{document}\t1" for query, found in qrels.items() for document in found)
        write_lines(folder / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore", *rows])


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a temporary file and renames it, so that readers never see an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    part.replace(path)


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Appends a line to a JSONL file, under a lock; replaces an incomplete line of a killed process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:  # closing it releases the lock
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(row).encode() + b"\n")
