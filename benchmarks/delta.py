"""Measures deltas: seconds until 100 upserts and 900 deletes are served, and whether responses stay correct.

    python -m benchmarks.delta --root INDEX_ROOT [--model models/NAME] [--upserts 100] [--deletes 900] [--json FILE]

The root is copied by hard links and does not change; its live version is the base. Half of the upserts are new ids, half
replace documents; their texts are those of indexed documents plus a word. A service follows the copy, and a change is
visible when the service finds the last document. The first 10 hits of exact search are compared with those of a
compacted index. With `--rebuild` they are also compared with those of an index encoded again from all documents with
the same term statistics, which takes as long as a build.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.report import emit_json
from glow.artifact import IndexRoot, default_model
from glow.index import Index
from glow.index.columns import COLUMNS
from glow.index.passages import PASSAGES, PassageMap
from glow.index.postings import POSTINGS, ImpactsView
from glow.index.stored_fields import STORED_FIELDS, DocumentsView
from glow.index.vectors import VECTORS, DenseView, SearchParams
from glow.records import Document
from glow.runtime import Model
from glow.search import search_documents
from glow_index_builder.deltas.upsert import write_segment
from glow_index_builder.open_version import OpenVersion

DEPTH = 10
TITLE_WORDS = 8
WAIT_S = 120.0
Seconds = dict[str, float]
Answers = dict[str, list[set[str]]]
"""Retriever -> the ids of each query's first hits."""


def main(
    root: Annotated[Path, typer.Option(help="Index root whose live version is the base; it stays as it is.")],
    model: Annotated[Path | None, typer.Option(help="Model that built it; default: models/DEFAULT.")] = None,
    upserts: Annotated[int, typer.Option(help="Documents to upsert, half of them new.")] = 100,
    deletes: Annotated[int, typer.Option(help="Documents to delete.")] = 900,
    queries: Annotated[int, typer.Option(help="Queries to compare answers by.")] = 300,
    threads: Annotated[int, typer.Option(help="Threads of encoding.")] = 1,
    rebuild: Annotated[bool, typer.Option(help="Also compare with all documents encoded again.")] = False,
    seed: Annotated[int, typer.Option(help="Of what is changed and asked.")] = 0,
    output: Annotated[Path | None, typer.Option("--json", help="Write the report to this file.")] = None,
) -> None:
    """Prints seconds and agreement as JSON."""
    with tempfile.TemporaryDirectory(dir=root.resolve().parent, prefix="delta-benchmark-") as scratch:
        folder = Path(scratch)
        copy = IndexRoot(Path(shutil.copytree(root, folder / "root", copy_function=os.link)))
        (copy.path / "CURRENT").unlink()  # a hard link to the other's file, which must not change
        (copy.path / "CURRENT").write_text(IndexRoot(root).current() + "\n")
        chosen = _choose(copy, upserts, deletes, queries, seed)
        _write(chosen, folder)
        common = ["--index-root", str(copy.path), "--max-delta-ratio", "1"]
        encode = ["--model", str(model or default_model()), "--threads", str(threads)]
        with _service(copy.path, folder) as client:
            report: dict[str, Any] = {
                "documents": OpenVersion.open(copy).base.rows.documents,
                "upsert": _timed(
                    ["upsert", "--input", str(folder / "new.jsonl"), *common, *encode],
                    folder,
                    lambda: _status(client, chosen["last_new"]) == 200,
                ),
                "delete": _timed(
                    ["delete", "--input", str(folder / "ids"), *common],
                    folder,
                    lambda: _status(client, chosen["last_gone"]) == 404,
                ),
            }
        index = _opened(copy)
        answers = _answers(_parts(index), index, chosen["queries"])
        if rebuild:
            fresh = _rebuilt(copy, index, model or default_model(), threads, folder / "rebuilt")
            report["agrees_with_rebuild"] = _agreement(answers, _answers(fresh, index, chosen["queries"]))
        report["compact"] = _timed(
            ["compact", "--index-root", str(copy.path), "--threads", str(threads)], folder, lambda: True
        )
        after = _answers(_parts(_opened(copy)), index, chosen["queries"])
        report["agrees_with_compacted"] = _agreement(answers, after)
    emit_json(report, output)


def _choose(root: IndexRoot, upserts: int, deletes: int, queries: int, seed: int) -> dict[str, Any]:
    """Chooses changes and queries from the index's own documents."""
    documents = OpenVersion.open(root).documents
    generator = random.Random(seed)  # noqa: S311 - a sample
    rows = generator.sample(range(documents.count), upserts + deletes + queries)
    found = documents.rows(rows)
    changed, gone, asked = found[:upserts], found[upserts : upserts + deletes], found[upserts + deletes :]
    lines = [
        {"_id": f"delta-benchmark/{number}" if number % 2 else document.id, **_altered(document, number)}
        for number, document in enumerate(changed)
    ]
    return {
        "lines": lines,
        "ids": [document.id for document in gone],
        "queries": [_query(document) for document in asked],
        "last_new": f"delta-benchmark/{upserts - 1 - upserts % 2}",
        "last_gone": gone[-1].id,
    }


def _altered(document: Document, number: int) -> dict[str, Any]:
    fields = {name: list(values) for name, values in document.fields.items()}
    name = max(fields, key=lambda each: sum(map(len, fields[each])))
    fields[name] = [*fields[name][:-1], f"{fields[name][-1]} change{number}"]
    return {**document.metadata, **fields}


def _query(document: Document) -> str:
    texts = [text for name in ("title", "text") for text in document.fields.get(name, ())]
    texts += [text for values in document.fields.values() for text in values]
    return " ".join(texts[0].split()[:TITLE_WORDS])


def _write(chosen: dict[str, Any], folder: Path) -> None:
    (folder / "new.jsonl").write_text("".join(json.dumps(line) + "\n" for line in chosen["lines"]))
    (folder / "ids").write_text("".join(json.dumps({"_id": each}) + "\n" for each in chosen["ids"]))


def _timed(arguments: list[str], folder: Path, is_visible: Callable[[], bool]) -> Seconds:
    """Seconds from a command's start to its end and to the visible change, and of its stages."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "glow", *arguments, "--json", str(folder / "report.json")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    ended = visible = 0.0
    while not (ended and visible) and time.perf_counter() - started < 10 * WAIT_S:
        ended = ended or (time.perf_counter() - started if process.poll() is not None else 0.0)
        visible = visible or (time.perf_counter() - started if is_visible() else 0.0)
        time.sleep(0.01)
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors.decode())
    stages: Seconds = json.loads((folder / "report.json").read_bytes())["seconds"]
    return {"command": round(ended, 2), "visible": round(visible, 2), **stages}


@contextmanager
def _service(root: Path, folder: Path) -> Iterator[httpx.Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "glow", "serve", "--index-root", str(root), "--port", str(port)]
    command += ["--workers", "1"]
    with (folder / "service.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S) as client:
            until = time.monotonic() + WAIT_S
            while not _is_ready(client):
                if time.monotonic() > until or process.poll() is not None:
                    raise SystemExit(
                        f"the service did not get ready:\n{(folder / 'service.log').read_text()}"
                    )
                time.sleep(0.05)
            yield client
    finally:
        process.terminate()
        process.wait()


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _status(client: httpx.Client, identifier: str) -> int:
    return client.get(f"/documents/{identifier}").status_code


class Searched(NamedTuple):
    """An index to compare, with parts like those of `Index`."""

    dense: DenseView
    documents: DocumentsView
    impacts: ImpactsView | None
    passages: PassageMap | None
    order: NDArray[np.uint32] | None


def _opened(root: IndexRoot) -> Index:
    return Index.open(root.folder(root.current()))


def _parts(index: Index) -> Searched:
    view = index.view
    return Searched(index[VECTORS], index[STORED_FIELDS], view.get(POSTINGS), view.get(PASSAGES), index.order)


def _rebuilt(root: IndexRoot, index: Index, model: Path, threads: int, folder: Path) -> Searched:
    """Rebuilds all documents of an index with its term statistics and average length."""
    made, _ = write_segment(
        index[STORED_FIELDS].scan(),
        OpenVersion.open(root),
        Model.open(model),
        folder,
        lambda count: None,
        threads,
    )
    order = made[COLUMNS].order
    return Searched(made[VECTORS], made[STORED_FIELDS], made.get(POSTINGS), made.get(PASSAGES), order)


def _answers(searched: Searched, index: Index, queries: list[str]) -> Answers:
    """The ids of the first dense and lexical hits of each query."""
    vectors = index.encoder.encode([index.preprocessor.query(query) for query in queries])
    params = SearchParams(exact=True)
    if searched.passages is not None:
        folded = search_documents(searched.dense, searched.passages, vectors, DEPTH, params)
        found = {"dense": [each[1] for each in folded]}
    else:
        found = {"dense": list(searched.dense.search(vectors, DEPTH, params, order=searched.order)[1])}
    if searched.impacts is not None:
        words = [index.preprocessor.pieces.words(query) for query in queries]
        found["lexical"] = [searched.impacts.search(each, DEPTH, None, searched.order)[1] for each in words]
    return {
        name: [{document.id for document in searched.documents.rows(rows.tolist())} for rows in hits]
        for name, hits in found.items()
    }


def _agreement(here: Answers, there: Answers) -> dict[str, float]:
    """The fraction of queries whose first hits have the same ids."""
    return {
        name: round(float(np.mean([a == b for a, b in zip(here[name], there[name], strict=True)])), 4)
        for name in here
    }


if __name__ == "__main__":
    typer.run(main)
