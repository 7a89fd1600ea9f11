"""The peers behind FastAPI, written like typical applications: loaded at import, with one plain `def` route, which runs in threads.

PEER=a PEER_INDEX=CACHE/tldr PEER_WEIGHTS=CACHE/minilm [PEER_INT8=avx2] uvicorn peer:app
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from build_peers import COLLECTION, INDEXES, fastembed_model, int8_file  # type: ignore[import-not-found]  # beside this file, where the server is started
from fastapi import FastAPI
from pydantic import BaseModel

PEER = os.environ["PEER"]
FOLDER = Path(os.environ["PEER_INDEX"])
INDEX = str(FOLDER / INDEXES[PEER])
WEIGHTS = Path(os.environ["PEER_WEIGHTS"])
WORD = re.compile(r"[^\W_]+")
Search = Callable[[str, int], list[str]]
"""Query and number of hits -> ids of the best documents."""


class SearchRequest(BaseModel):
    """A search request."""

    query: str
    top_k: int = 10


def minilm() -> Search:
    """Peers (a) and (b): all-MiniLM-L6-v2 by sentence-transformers, and a flat FAISS index."""
    from sentence_transformers import SentenceTransformer

    options: dict[str, Any] = {}
    if PEER == "b":
        options = {"backend": "onnx", "model_kwargs": {"file_name": int8_file(WEIGHTS)}}
    model = SentenceTransformer(str(WEIGHTS), device="cpu", **options)
    return flat(lambda query: model.encode([query], normalize_embeddings=True))


def fastembed() -> Search:
    """Peer (e): all-MiniLM-L6-v2 by fastembed, and a flat FAISS index."""
    import numpy as np

    model = fastembed_model(WEIGHTS)
    return flat(lambda query: np.stack(list(model.query_embed(query))))


def flat(encode: Callable[[str], Any]) -> Search:
    """Exact search over the vectors of a FAISS index."""
    import faiss

    index: Any = faiss.read_index(INDEX)
    ids = json.loads((FOLDER / "ids.json").read_text())
    return lambda query, k: [ids[row] for row in index.search(encode(query), k)[1][0]]


def chroma() -> Search:
    """Peer (d): Chroma with its own ONNX embedding function on the weights of the other peers."""
    import chromadb
    from chromadb.config import Settings
    from chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2 import ONNXMiniLM_L6_V2

    class LocalMiniLM(ONNXMiniLM_L6_V2):  # type: ignore[misc]  # Chroma is not in our environment
        """Chroma's default embedding with local files, so that it downloads nothing."""

        DOWNLOAD_PATH = WEIGHTS

    client = chromadb.PersistentClient(INDEX, Settings(anonymized_telemetry=False))
    collection = client.get_collection(COLLECTION, embedding_function=LocalMiniLM())
    return lambda query, k: list(collection.query(query_texts=[query], n_results=k, include=[])["ids"][0])


def milvus() -> Search:
    """Peer (f): Milvus Lite with MiniLM's vectors and BM25, fused by reciprocal ranks. It locks its file: one worker can serve it."""
    from pymilvus import AnnSearchRequest, MilvusClient, RRFRanker
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(WEIGHTS), device="cpu")
    client = MilvusClient(INDEX)
    client.load_collection(COLLECTION)

    def search(query: str, k: int) -> list[str]:
        vector = model.encode(query, normalize_embeddings=True)
        # As many candidates as hits, as in the examples of Milvus.
        near = AnnSearchRequest([vector.tolist()], "dense", {"metric_type": "COSINE"}, limit=k)
        words = AnnSearchRequest([query], "words", {"metric_type": "BM25"}, limit=k)
        hits = client.hybrid_search(COLLECTION, [near, words], RRFRanker(), limit=k)
        return [hit["id"] for hit in hits[0]]

    return search


def tantivy_words() -> Search:
    """Peer (g): tantivy's English stems and BM25, without vectors."""
    import tantivy

    index = tantivy.Index.open(INDEX)

    def search(query: str, k: int) -> list[str]:
        # Lowercase words alone: in tantivy's query language, `-x` excludes a word and `AND` is an operator.
        words = " ".join(WORD.findall(query.lower()))
        searcher = index.searcher()
        hits = searcher.search(index.parse_query(words, ["text"]), k).hits
        return [searcher.doc(address)["id"][0] for _, address in hits]

    return search


def bm25s_words() -> Search:
    """Peer (h): bm25s' English stems and BM25, without vectors."""
    import bm25s
    import Stemmer

    retriever = bm25s.BM25.load(INDEX)
    ids = json.loads((FOLDER / "ids.json").read_text())

    def search(query: str, k: int) -> list[str]:
        stemmer = Stemmer.Stemmer("english")  # one a request: cheap, and threads must not share it
        words = bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False)
        rows, scores = retriever.retrieve(words, k=k, show_progress=False)
        return [ids[row] for row, score in zip(rows[0], scores[0], strict=True) if score > 0]

    return search


OPEN: dict[str, Callable[[], Search]] = {
    "a": minilm, "b": minilm, "d": chroma, "e": fastembed, "f": milvus, "g": tantivy_words, "h": bm25s_words,
}  # fmt: skip
find = OPEN[PEER]()
app = FastAPI()


@app.post("/search")
def search(request: SearchRequest) -> dict[str, list[str]]:
    """The ids of the best documents."""
    return {"ids": find(request.query, request.top_k)}
