"""Collections of ir_datasets by name, written once as data folders: `irds:beir/scifact/test` (extra `ir-datasets`)."""

import importlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from glow.errors import DependencyError, InputError

__all__ = ["IRDS", "data_folder"]

IRDS = "irds:"
_BODIES = ("text", "body", "abstract", "contents", "main_content", "paragraph", "passage", "code")
_TITLES = ("title", "headline", "subject")
_QUERIES = ("text", "query", "title", "question")


def data_folder(data: Path, splits: Iterable[str], cache: Path | None = None) -> Path:
    """A data folder; what names a collection of ir_datasets is fetched and written first.

    Documents get the fields `title`, `url` and `text`; other text is metadata. The collection's judgements are those of every split
    that is asked for, because its name says which they are.

    Args:
        data: a folder, or `irds:NAME`.
        splits: names that its judgements are to have.
        cache: where folders are kept; default: `glow/irds` of the user's cache.

    Raises:
        DependencyError: if ir_datasets is not installed.
        InputError: if it knows no such collection, or that lacks documents, queries or judgements.
    """
    name = str(data)
    if not name.startswith(IRDS):
        return data
    name = name.removeprefix(IRDS)
    home = cache or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "glow" / "irds"
    folder = home / re.sub(r"[^A-Za-z0-9._-]", "_", name)
    if not (folder / "complete").is_file():
        _write(_load(name), folder)
    rows = (folder / "qrels.tsv").read_text(encoding="utf-8")
    (folder / "qrels").mkdir(exist_ok=True)
    for split in splits:
        (folder / "qrels" / f"{split}.tsv").write_text(rows, encoding="utf-8")
    return folder


def _load(name: str) -> Any:
    try:
        library = importlib.import_module("ir_datasets")
    except ImportError as error:
        raise DependencyError(
            f"{IRDS}{name} needs the package ir_datasets: install the extra `ir-datasets` (pip install 'glow-retrieval[ir-datasets]')"
        ) from error
    try:
        found = library.load(name)
    except KeyError as error:
        raise InputError(f"ir_datasets knows no {name!r}; https://ir-datasets.com lists its names") from error
    missing = [part for part in ("docs", "queries", "qrels") if not getattr(found, f"has_{part}")()]
    if missing:
        raise InputError(f"{name} of ir_datasets has no {' and no '.join(missing)}; name one of its subsets")
    return found


def _write(found: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for document in found.docs_iter():
            file.write(json.dumps(_document(document._asdict()), ensure_ascii=False) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
        for query in found.queries_iter():
            values = query._asdict()
            text = next((values[name] for name in _QUERIES if isinstance(values.get(name), str)), "")
            file.write(json.dumps({"_id": query.query_id, "text": text}, ensure_ascii=False) + "\n")
    rows = [f"{row.query_id}\t{row.doc_id}\t{int(row.relevance)}\n" for row in found.qrels_iter()]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")
    (folder / "complete").touch()


def _document(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"_id": values.pop("doc_id")}
    for wanted, names in (("title", _TITLES), ("url", ("url",)), ("text", _BODIES)):
        name = next((name for name in names if isinstance(values.get(name), str)), None)
        if name is not None:
            found[wanted] = values.pop(name)
    if "text" not in found:
        found["text"] = " ".join(value for value in values.values() if isinstance(value, str))
    return {**{key: value for key, value in values.items() if isinstance(value, str | int | float)}, **found}
