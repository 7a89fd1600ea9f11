"""Peer (g): tantivy behind FastAPI: English stems and BM25, without vectors.

PEER_INDEX=CACHE/tldr uvicorn peer_tantivy:app
"""

import os
import re
from pathlib import Path

import tantivy
from build_peers import INDEXES  # type: ignore[import-not-found]  # beside this file, as for peer_minilm
from fastapi import FastAPI
from pydantic import BaseModel

WORD = re.compile(r"[^\W_]+")

index = tantivy.Index.open(str(Path(os.environ["PEER_INDEX"]) / INDEXES["g"]))
app = FastAPI()


class SearchRequest(BaseModel):
    """A search request."""

    query: str
    top_k: int = 10


@app.post("/search")
def search(request: SearchRequest) -> dict[str, list[str]]:
    """The ids of the best documents."""
    # Lowercase words alone: in tantivy's query language, `-x` excludes a word and `AND` is an operator.
    words = " ".join(WORD.findall(request.query.lower()))
    searcher = index.searcher()
    found = searcher.search(index.parse_query(words, ["text"]), request.top_k)
    return {"ids": [searcher.doc(address)["id"][0] for _, address in found.hits]}
