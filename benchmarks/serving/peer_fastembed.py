"""Peer (e): all-MiniLM-L6-v2 by fastembed and a flat FAISS index behind FastAPI.

PEER_INDEX=CACHE/tldr PEER_WEIGHTS=CACHE/fastembed uvicorn peer_fastembed:app
"""

import json
import os
from pathlib import Path

import faiss
import numpy as np
from build_peers import INDEXES, fastembed_model  # type: ignore[import-not-found]  # beside this file, as for peer_minilm
from fastapi import FastAPI
from pydantic import BaseModel

INDEX = Path(os.environ["PEER_INDEX"])

model = fastembed_model(Path(os.environ["PEER_WEIGHTS"]))
index = faiss.read_index(str(INDEX / INDEXES["e"]))
ids = json.loads((INDEX / "ids.json").read_text())
app = FastAPI()


class SearchRequest(BaseModel):
    """A search request."""

    query: str
    top_k: int = 10


@app.post("/search")
def search(request: SearchRequest) -> dict[str, list[str]]:
    """The ids of the nearest documents."""
    vector = np.stack(list(model.query_embed(request.query)))
    _, rows = index.search(vector, request.top_k)
    return {"ids": [ids[row] for row in rows[0]]}
