"""Peer (d): Chroma behind FastAPI, with its own ONNX embedding function on the weights of the other peers.

PEER_INDEX=CACHE/tldr PEER_WEIGHTS=CACHE/chroma uvicorn peer_chroma:app
"""

import os
from pathlib import Path

import chromadb
from chromadb.config import Settings
from chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2 import ONNXMiniLM_L6_V2
from fastapi import FastAPI
from pydantic import BaseModel


class LocalMiniLM(ONNXMiniLM_L6_V2):  # type: ignore[misc]  # Chroma is not in our environment
    """Chroma's default embedding with local files, so that it downloads nothing."""

    DOWNLOAD_PATH = Path(os.environ["PEER_WEIGHTS"])


client = chromadb.PersistentClient(
    str(Path(os.environ["PEER_INDEX"]) / "chroma"), Settings(anonymized_telemetry=False)
)
collection = client.get_collection("documents", embedding_function=LocalMiniLM())
app = FastAPI()


class SearchRequest(BaseModel):
    """A search request."""

    query: str
    top_k: int = 10


@app.post("/search")
def search(request: SearchRequest) -> dict[str, list[str]]:
    """The ids of the nearest documents."""
    found = collection.query(query_texts=[request.query], n_results=request.top_k, include=[])
    return {"ids": found["ids"][0]}
