"""Everything that is known of the indexes, exactly: files, manifests, reports, `/info` and answers, without times."""

import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from glow.cli import app
from tests.goldens.corpora import CORPORA, DATA, Corpus
from tests.goldens.service import answers, serving
from tests.learned_head import add_untrained_head

__all__ = ["ROWS", "whole"]

Json = dict[str, Any]
ROWS = "documents.sqlite"
"""Its bytes say which SQLite wrote it; its rows do not."""
APART = {"manifest.json", "report.json"}
_CHANGING = {
    *("created", "checksum", "seconds", "documents_per_second", "milliseconds_each", "peak_memory_bytes"),
    *("stage_peak_memory_bytes", "tool", "version", "built_by", "request_id", "took_ms", "timings_ms"),
}
"""Members, at any depth, that are times, versions of programs, or memory."""
_VERSION = re.compile(r"\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{4}")


def whole(work: Path) -> Json:
    """Corpus -> state (`built`, `changed`, `compacted`) -> what is known of it."""
    models = {False: DATA / "toy-model", True: work / "toy-learned"}
    shutil.copytree(models[False], models[True])
    add_untrained_head(models[True], work / "checkpoint")
    return {
        name: dict(_states(corpus, models[corpus.has_head], work / name)) for name, corpus in CORPORA.items()
    }


def _states(corpus: Corpus, model: Path, work: Path) -> Iterator[tuple[str, Json]]:
    work.mkdir()
    for name, records in {"base": corpus.documents(), "upserts": corpus.upserts()}.items():
        (work / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    (work / "deletes").write_text("".join(f"{name}\n" for name in corpus.deletes()))
    encode = ("--model", str(model), "--threads", "1")
    for state, commands in {
        "built": (("build", "--input", str(work / "base"), *encode, *corpus.flags),),
        "changed": (
            ("upsert", "--input", str(work / "upserts"), *encode),
            ("delete", "--input", str(work / "deletes")),
        ),
        "compacted": (("compact", "--threads", "1"),),
    }.items():
        printed = {command[0]: _run(work, *command) for command in commands}
        yield state, _cleaned({**_look(work / "index"), "printed": printed}, f"{work}/")


def _run(work: Path, *command: str) -> Json:
    printed = str(work / "printed")
    ended = CliRunner().invoke(app, [*command, "--index-root", str(work / "index"), "--json", printed])
    assert ended.exit_code == 0, ended.output
    return json.loads((work / "printed").read_bytes())


def _look(root: Path) -> Json:
    folder = root / (root / "CURRENT").read_text(encoding="utf-8").splitlines()[0]
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    manifest = json.loads((folder / "manifest.json").read_bytes())
    del manifest["files"]  # are below
    for parent in manifest["parents"].values():
        if _VERSION.fullmatch(parent["name"]):
            del parent["hash"]  # of its manifest, which has its time
    with serving(root) as client:
        info, answered = client.get("/info").json(), answers(client)
    return {
        "files": {name: _file(folder / name) for name in names if name not in APART},
        "manifest": manifest,
        "report": json.loads((folder / "report.json").read_bytes()),
        "info": info,
        "answers": answered,
    }


def _file(path: Path) -> Json:
    data = path.read_bytes()
    found = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {**found, "rows": _rows(path)} if path.name == ROWS else found


def _rows(path: Path) -> str:
    """SHA-256 of the documents in their order."""
    database = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    try:
        rows = database.execute("SELECT * FROM documents ORDER BY row").fetchall()
    finally:
        database.close()
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _cleaned(value: Any, work: str) -> Any:
    """Without what changes from run to run: times, names of versions, and paths of the work folder."""
    if isinstance(value, dict):
        return {name: _cleaned(each, work) for name, each in value.items() if name not in _CHANGING}
    if isinstance(value, list):
        return [_cleaned(each, work) for each in value]
    return _VERSION.sub("VERSION", value).replace(work, "") if isinstance(value, str) else value
