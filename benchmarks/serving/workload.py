"""Prepares requests: real queries as the lines of a file for the load generators."""

import http.client
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glow.collection import read_queries

__all__ = ["Request", "call", "mixed_texts", "query_texts", "search_request", "send", "write_requests"]

MAX_CHARS = 2_000
"""The service's default limit of a query."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request: GET without a body, POST of JSON with one."""

    path: str
    body: str = ""


def search_request(text: str, top_k: int = 10) -> Request:
    """GLOW's request: ids and scores of the best hits, without their texts."""
    return Request("/search", json.dumps({"query": text, "top_k": top_k, "fields": []}))


def query_texts(folders: Iterable[Path], seed: int = 0) -> list[str]:
    """The distinct query texts of data directories, judged or not, in a seeded order."""
    texts = dict.fromkeys(
        query.text.strip() for folder in folders for query in read_queries(folder / "queries.jsonl")
    )
    known = [text for text in texts if text]
    return [known[position] for position in np.random.default_rng(seed).permutation(len(known))]


def mixed_texts(texts: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """Distinct queries from one word to the longest allowed, made by joining real ones.

    Half are real queries cut or joined to 1-32 words; the lengths of the others are uniform up to 300 words.
    """
    rng = np.random.default_rng(seed)
    words = [word for text in texts for word in text.split()]
    made: dict[str, None] = {}
    while len(made) < count:
        length = int(rng.integers(1, 33) if rng.random() < 0.5 else rng.integers(33, 301))
        start = int(rng.integers(0, max(1, len(words) - length)))
        text = " ".join(words[start : start + length])
        # A few short texts recur; a number makes each a distinct query.
        made[(f"{text} {len(made)}" if text in made else text)[:MAX_CHARS]] = None
    return list(made)


def write_requests(path: Path, requests: Iterable[Request]) -> Path:
    """Writes `PATH<tab>BODY` lines; JSON holds neither tabs nor line ends."""
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.writelines(f"{request.path}\t{request.body}\n" for request in requests)
    return path


def call(port: int, request: Request, timeout_s: float = 30.0) -> tuple[int, bytes]:
    """Sends one request over a new connection; returns status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        return send(connection, request)
    finally:
        connection.close()


def send(connection: http.client.HTTPConnection, request: Request) -> tuple[int, bytes]:
    """Sends one request over an open connection; returns status and body."""
    headers = {"Content-Type": "application/json"} if request.body else {}
    connection.request("POST" if request.body else "GET", request.path, request.body or None, headers)
    response = connection.getresponse()
    return response.status, response.read()
