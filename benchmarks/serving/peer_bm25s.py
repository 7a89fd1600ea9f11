"""Peer (h): bm25s behind FastAPI: English stems and BM25, without vectors.

PEER_INDEX=CACHE/tldr uvicorn peer_bm25s:app
"""

import json
import os
from pathlib import Path

import bm25s
import Stemmer
from build_peers import INDEXES  # type: ignore[import-not-found]  # beside this file, as for peer_minilm
from fastapi import FastAPI
from pydantic import BaseModel

INDEX = Path(os.environ["PEER_INDEX"])

retriever = bm25s.BM25.load(str(INDEX / INDEXES["h"]))
ids = json.loads((INDEX / "ids.json").read_text())
app = FastAPI()


class SearchRequest(BaseModel):
    """A search request."""

    query: str
    top_k: int = 10


@app.post("/search")
def search(request: SearchRequest) -> dict[str, list[str]]:
    """The ids of the best documents."""
    stemmer = Stemmer.Stemmer("english")  # one a request: cheap, and threads must not share it
    words = bm25s.tokenize(request.query, stopwords="en", stemmer=stemmer, show_progress=False)
    rows, scores = retriever.retrieve(words, k=request.top_k, show_progress=False)
    return {"ids": [ids[row] for row, score in zip(rows[0], scores[0], strict=True) if score > 0]}
