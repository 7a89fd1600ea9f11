"""Peers (a) and (b): all-MiniLM-L6-v2 by sentence-transformers and a flat FAISS index behind FastAPI.

PEER_INDEX=CACHE/tldr PEER_WEIGHTS=CACHE/minilm [PEER_BACKEND=onnx] [PEER_INT8=avx2] uvicorn peer_minilm:app

Written like typical applications: loaded at import, with one plain `def` route, which FastAPI runs in threads.
"""

import json
import os
from pathlib import Path

import faiss
from build_peers import INDEXES, int8_file  # type: ignore[import-not-found]  # beside this file, where the server is started
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

BACKEND = os.environ.get("PEER_BACKEND", "torch")
INDEX = Path(os.environ["PEER_INDEX"])

if BACKEND == "onnx":
    model = SentenceTransformer(
        os.environ["PEER_WEIGHTS"],
        device="cpu",
        backend="onnx",
        model_kwargs={"file_name": int8_file(Path(os.environ["PEER_WEIGHTS"]))},
    )
else:
    model = SentenceTransformer(os.environ["PEER_WEIGHTS"], device="cpu")
index = faiss.read_index(str(INDEX / INDEXES["b" if BACKEND == "onnx" else "a"]))
ids = json.loads((INDEX / "ids.json").read_text())
app = FastAPI()


class SearchRequest(BaseModel):
    """A search request."""

    query: str
    top_k: int = 10


@app.post("/search")
def search(request: SearchRequest) -> dict[str, list[str]]:
    """The ids of the nearest documents."""
    vector = model.encode([request.query], normalize_embeddings=True)
    _, rows = index.search(vector, request.top_k)
    return {"ids": [ids[row] for row in rows[0]]}
