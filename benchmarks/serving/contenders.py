"""The compared servers: how to build, start and query each, and how to read its responses."""

import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.serving.build_peers import INDEXES, USES_VECTORS_OF_A, seconds_file
from benchmarks.serving.load import ROOT, Request, ServerSpec, our_service, search_request
from glow.collection import read_documents
from glow.records import Document
from glow.schema import FieldSchema

OURS = "GLOW"
"""Hybrid search, the default."""
OURS_DENSE = "GLOW dense"
"""The same service with dense search, as in peers (a), (b), (d) and (e)."""
OURS_WORDS = "GLOW words"
"""The same service with lexical search, as in peers (g) and (h)."""
RETRIEVERS = {OURS: "auto", OURS_DENSE: "dense", OURS_WORDS: "lexical"}
PEERS = {
    "a": "sentence-transformers + FAISS",
    "b": "the same, ONNX int8",
    "c": "txtai",
    "d": "Chroma",
    "e": "fastembed + FAISS",
    "f": "Milvus Lite, hybrid",
    "g": "tantivy, words",
    "h": "bm25s, words",
}
WORDS_ONLY = ("g", "h")
"""Peers without vectors; targets do not apply to them."""
HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
PROBE = "how do i list the files of a folder"
OFFLINE = {"HF_HUB_OFFLINE": "1"}
"""The peers read local files; without this some would query a hub first."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A compared server."""

    key: str  # GLOW with its kind of search, or the peer's letter
    spec: ServerSpec  # how to start it
    request: Callable[[str], Request]  # makes the request for a query's ten best documents
    ids: Callable[[Any], list[str]]  # reads the documents' ids from the response's JSON, best first


@dataclass(frozen=True, slots=True)
class Site:
    """The paths of one dataset's artifacts."""

    data: Path  # BEIR data directory
    cache: Path  # directory of files that are built once for all datasets
    peers_python: Path  # interpreter of the peers' environment
    documents: int = 0  # number of documents of the corpus; 0: all

    @property
    def folder(self) -> Path:
        """Directory of the files built for this dataset."""
        return self.cache / (f"{self.data.name}-{self.documents}" if self.documents else self.data.name)

    def index(self, key: str) -> Path:
        """The index of a contender; all kinds of GLOW's search share one."""
        return self.folder / INDEXES.get(key, "glow")


def peers_environment(cache: Path) -> Path:
    """Makes the peers' environment in the cache if it is missing or its requirements changed; returns its interpreter."""
    folder = cache / "env"
    python, mark = folder / "bin" / "python", folder / REQUIREMENTS.name
    if not mark.exists() or mark.read_bytes() != REQUIREMENTS.read_bytes():
        sys.stderr.write(f"installing the peers in {folder}; once, and it takes minutes\n")
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "-r", str(REQUIREMENTS)]
        subprocess.run(install, check=True, stdout=sys.stderr)
        shutil.copyfile(REQUIREMENTS, mark)  # last: an interrupted installation starts again
    return python


def build(site: Site, names: Sequence[str], model: Path) -> None:
    """Builds the contenders' missing files."""
    site.folder.mkdir(parents=True, exist_ok=True)
    if set(RETRIEVERS) & set(names) and not seconds_file(site.index(OURS)).exists():
        _build_ours(site, model)
    peers = [name for name in PEERS if name in names]
    if set(USES_VECTORS_OF_A) & set(peers) and "a" not in peers:
        peers.insert(0, "a")
    if missing := [name for name in peers if not seconds_file(site.index(name)).exists()]:
        _build_peers(site, missing)


def build_seconds(site: Site, key: str) -> float:
    """Seconds that the build of a contender's index took, encoding included, whenever it was."""
    return float(json.loads(seconds_file(site.index(key)).read_text(encoding="utf-8"))["seconds"])


def _build_ours(site: Site, model: Path) -> None:
    corpus, target = site.folder / "corpus.jsonl", site.index(OURS).resolve()
    with (site.data / "corpus.jsonl").open("rb") as source, corpus.open("wb") as copy:
        copy.writelines(islice(source, site.documents or None))
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", "glow", "build", "--model", str(model.resolve())]
    files = ["--input", str(corpus.resolve()), "--index-root", str(target)]
    start = time.perf_counter()
    subprocess.run([*command, *files], check=True, cwd=ROOT, stdout=sys.stderr)
    found = {"seconds": round(time.perf_counter() - start, 2)}
    seconds_file(target).write_text(json.dumps(found) + "\n", encoding="utf-8")


def _build_peers(site: Site, names: Sequence[str]) -> None:
    lines, cache = site.folder / "documents.jsonl", str(site.cache.resolve())
    documents = read_documents(site.data / "corpus.jsonl", FieldSchema.preset("glow-default").names)
    with lines.open("w", encoding="utf-8") as file:
        for document in islice(documents, site.documents or None):
            file.write(json.dumps({"id": document.id, "text": _joined(document)}) + "\n")
    _peers(site, "weights", "--out", cache)
    files = ["--documents", str(lines.resolve()), "--cache", cache, "--out", str(site.folder.resolve())]
    for name in names:
        sys.stderr.write(f"building the index of ({name}) {PEERS[name]}\n")
        _peers(site, "index", *files, "--peer", name)


def _joined(document: Document) -> str:
    """A document as one text, as `glow.training.teacher.joined_text` makes it, which needs torch."""
    return ". ".join(text for name, values in document.fields.items() if name != "url" for text in values)


def _peers(site: Site, *arguments: str) -> None:
    command = [str(site.peers_python.absolute()), str(HERE / "build_peers.py"), *arguments]
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, **OFFLINE})


def contender(site: Site, key: str, workers: int, flags: Sequence[str]) -> Contender:
    """A contender by its name or letter."""
    return _peer(site, key, workers) if key in PEERS else _ours(site, key, flags)


def _ours(site: Site, key: str, flags: Sequence[str]) -> Contender:
    """GLOW's service without a cache, so that repeated queries cost the same."""
    retriever = ["--default-retriever", RETRIEVERS[key]]
    spec = our_service(site.index(key), "--cache-entries", "0", *retriever, *flags)
    return Contender(key, spec, search_request, lambda answer: [str(hit["id"]) for hit in answer["hits"]])


def _peer(site: Site, key: str, workers: int) -> Contender:
    folder, cache = site.folder.resolve(), site.cache.resolve()
    if key == "c":
        variables = {"CONFIG": str(folder / "txtai.yml")}
        spec = _uvicorn(site, key, "txtai.api:app", variables, _txtai_request(PROBE), workers)
        return Contender(key, spec, _txtai_request, lambda answer: [str(hit["id"]) for hit in answer])
    weights = cache / {"d": "chroma", "e": "fastembed"}.get(key, "minilm")
    variables = {"PEER": key, "PEER_INDEX": str(folder), "PEER_WEIGHTS": str(weights)}
    # Milvus Lite locks its file: one process can serve it.
    workers = 1 if key == "f" else workers
    spec = _uvicorn(site, key, "peer:app", variables, _peer_request(PROBE), workers)
    return Contender(key, spec, _peer_request, lambda answer: [str(found) for found in answer["ids"]])


def _uvicorn(
    site: Site, key: str, app: str, variables: Mapping[str, str], ready: Request, workers: int
) -> ServerSpec:
    python = str(site.peers_python.absolute())  # not resolved: a venv is known by its path
    command = [python, "-m", "uvicorn", app, "--port", "{port}", "--workers", str(workers)]
    quiet = ["--log-level", "warning"]
    environment = {**OFFLINE, "TOKENIZERS_PARALLELISM": "false", **variables}
    return ServerSpec(f"peer-{key}", [*command, *quiet], ready, environment, HERE)


def _peer_request(text: str) -> Request:
    return Request("/search", json.dumps({"query": text, "top_k": 10}))


def _txtai_request(text: str) -> Request:
    return Request("/search?" + urlencode({"query": text, "limit": 10}))
