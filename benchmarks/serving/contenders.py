"""The compared servers: how to build, start and query each, and how to read its responses."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.serving.servers import ROOT, ServerSpec, our_service
from benchmarks.serving.workload import Request, search_request
from glow.collection import read_documents
from glow.schema import FieldSchema

__all__ = ["OURS", "OURS_DENSE", "PEERS", "Contender", "Site", "build", "ours", "peer"]

OURS = "GLOW"
OURS_DENSE = "GLOW dense"
"""The same service with dense search, as in peers (a), (b) and (d); plain `GLOW` uses hybrid search."""
PEERS = {
    "a": "sentence-transformers + FAISS",
    "b": "the same, ONNX int8",
    "c": "txtai",
    "d": "Chroma",
}
HERE = Path(__file__).resolve().parent
PROBE = "how do i list the files of a folder"


@dataclass(frozen=True, slots=True)
class Contender:
    """A compared server.

    Attributes:
        key: `GLOW`, or the peer's letter.
        spec: how to start it.
        request: makes the request for a query's ten best documents.
        ids: reads the documents' ids from the response's JSON, best first.
    """

    key: str
    spec: ServerSpec
    request: Callable[[str], Request]
    ids: Callable[[Any], list[str]]


@dataclass(frozen=True, slots=True)
class Site:
    """The paths of one dataset's artifacts.

    Attributes:
        data: BEIR data directory.
        cache: directory of files that are built once for all datasets.
        peers_python: interpreter of the peers' environment.
        documents: number of documents of the corpus; 0: all.
    """

    data: Path
    cache: Path
    peers_python: Path
    documents: int = 0

    @property
    def folder(self) -> Path:
        """Directory of the files built for this dataset."""
        return self.cache / (f"{self.data.name}-{self.documents}" if self.documents else self.data.name)


def build(site: Site, names: Sequence[str], model: Path) -> None:
    """Builds the contenders' missing files.

    Args:
        site: the dataset's paths.
        names: `GLOW` and letters of peers.
        model: GLOW's model directory.
    """
    site.folder.mkdir(parents=True, exist_ok=True)
    if {OURS, OURS_DENSE} & set(names) and not (site.folder / "glow" / "CURRENT").exists():
        _build_ours(site, model)
    peers = [name for name in names if name in PEERS]
    if peers:
        _build_peers(site, peers)


def _build_ours(site: Site, model: Path) -> None:
    corpus = site.folder / "corpus.jsonl"
    with (site.data / "corpus.jsonl").open("rb") as source, corpus.open("wb") as target:
        target.writelines(islice(source, site.documents or None))
    shutil.rmtree(site.folder / "glow", ignore_errors=True)
    command = [sys.executable, "-m", "glow", "build", "--model", str(model.resolve())]
    files = ["--input", str(corpus.resolve()), "--index-root", str((site.folder / "glow").resolve())]
    subprocess.run([*command, *files], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def _build_peers(site: Site, names: Sequence[str]) -> None:
    from glow.nn.bert import minilm_folder  # needs torch, which GLOW does not
    from glow.training.teacher import joined_text

    lines = site.folder / "documents.jsonl"
    found = read_documents(site.data / "corpus.jsonl", FieldSchema.preset("glow-default").names)
    with lines.open("w", encoding="utf-8") as file:
        for document in islice(found, site.documents or None):
            file.write(json.dumps({"id": document.id, "text": joined_text(document)}) + "\n")
    script = [str(site.peers_python), str(HERE / "build_peers.py")]
    weights = ["weights", "--source", str(minilm_folder()), "--out", str(site.cache.resolve())]
    files = ["--documents", str(lines), "--cache", str(site.cache.resolve())]
    subprocess.run([*script, *weights], check=True)
    which = [part for name in names for part in ("--peer", name)]
    subprocess.run([*script, "indexes", *files, "--out", str(site.folder.resolve()), *which], check=True)


def ours(site: Site, key: str, flags: Sequence[str]) -> Contender:
    """GLOW's service without a cache, so that repeated queries cost the same."""
    retriever = ["--default-retriever", "dense"] if key == OURS_DENSE else []
    spec = our_service(site.folder / "glow", "--cache-entries", "0", *retriever, *flags)
    return Contender(key, spec, search_request, lambda answer: [str(hit["id"]) for hit in answer["hits"]])


def peer(site: Site, key: str, workers: int) -> Contender:
    """One of the peers, by its letter."""
    folder, cache = site.folder.resolve(), site.cache.resolve()
    if key == "c":
        variables = {"CONFIG": str(folder / "txtai.yml")}
        spec = _uvicorn(site, key, "txtai.api:app", variables, _txtai_request(PROBE), workers)
        return Contender(key, spec, _txtai_request, lambda answer: [str(hit["id"]) for hit in answer])
    weights = cache / ("chroma" if key == "d" else "minilm")
    variables = {"PEER_INDEX": str(folder), "PEER_WEIGHTS": str(weights)}
    if key == "b":
        variables["PEER_BACKEND"] = "onnx"
    app = "peer_chroma:app" if key == "d" else "peer_minilm:app"
    spec = _uvicorn(site, key, app, variables, _peer_request(PROBE), workers)
    return Contender(key, spec, _peer_request, lambda answer: [str(found) for found in answer["ids"]])


def _uvicorn(
    site: Site, key: str, app: str, variables: Mapping[str, str], ready: Request, workers: int
) -> ServerSpec:
    python = str(site.peers_python.absolute())  # not resolved: a venv is known by its path
    command = [python, "-m", "uvicorn", app, "--port", "{port}", "--workers", str(workers)]
    # The peers read local files; without this some would query a hub first.
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    quiet = ["--no-access-log", "--log-level", "warning"]
    return ServerSpec(f"peer-{key}", [*command, *quiet], ready, {**offline, **variables}, HERE)


def _peer_request(text: str) -> Request:
    return Request("/search", json.dumps({"query": text, "top_k": 10}))


def _txtai_request(text: str) -> Request:
    return Request("/search?" + urlencode({"query": text, "limit": 10}))
