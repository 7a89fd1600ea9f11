"""Peer (f): hybrid search of Milvus Lite behind FastAPI: MiniLM's vectors and BM25, fused by reciprocal ranks.

PEER_INDEX=CACHE/tldr PEER_WEIGHTS=CACHE/minilm uvicorn peer_milvus:app

Milvus Lite runs inside this process. It locks its file, so that only one worker can serve it.
"""

import os
from pathlib import Path

from build_peers import COLLECTION, INDEXES  # type: ignore[import-not-found]  # beside this file, as for peer_minilm
from fastapi import FastAPI
from pydantic import BaseModel
from pymilvus import AnnSearchRequest, MilvusClient, RRFRanker
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(os.environ["PEER_WEIGHTS"], device="cpu")
client = MilvusClient(str(Path(os.environ["PEER_INDEX"]) / INDEXES["f"]))
client.load_collection(COLLECTION)
app = FastAPI()


class SearchRequest(BaseModel):
    """A search request."""

    query: str
    top_k: int = 10


@app.post("/search")
def search(request: SearchRequest) -> dict[str, list[str]]:
    """The ids of the best documents by both methods."""
    vector = model.encode(request.query, normalize_embeddings=True)
    # As many candidates as hits, as in the examples of Milvus.
    near = AnnSearchRequest([vector.tolist()], "dense", {"metric_type": "COSINE"}, limit=request.top_k)
    words = AnnSearchRequest([request.query], "words", {"metric_type": "BM25"}, limit=request.top_k)
    found = client.hybrid_search(COLLECTION, [near, words], RRFRanker(), limit=request.top_k)
    return {"ids": [hit["id"] for hit in found[0]]}
