"""Prepares the peers in their own environment: converts the weights and builds the indexes.

PEERS/bin/python -m benchmarks.serving.build_peers weights --source DIR --out CACHE
PEERS/bin/python -m benchmarks.serving.build_peers indexes --documents FILE --cache CACHE --out CACHE/tldr --peer a

`benchmarks/serving/peers.py` calls it; existing files in the cache are kept.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

INT8_CONFIG = os.environ.get("PEER_INT8", "avx512_vnni")
"""Quantization preset of sentence-transformers' export: `avx512_vnni`, or `avx2` for CPUs without it."""
CHROMA_FILES = (
    "config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "vocab.txt",
)
CHUNK = 512
app = typer.Typer(add_completion=False)


@app.command()
def weights(
    source: Annotated[Path, typer.Option(help="Folder of all-MiniLM-L6-v2.")],
    out: Annotated[Path, typer.Option(help="Cache folder.")],
) -> None:
    """Writes the same weights for torch, as int8 ONNX by sentence-transformers' own export, and in Chroma's layout."""
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    folder, chroma = out / "minilm", out / "chroma.tmp" / "onnx"
    if (out / "chroma").exists() and any((folder / "onnx").glob(f"*{INT8_CONFIG}.onnx")):
        return
    shutil.copytree(source, folder, dirs_exist_ok=True)
    model = SentenceTransformer(
        str(folder), device="cpu", backend="onnx", local_files_only=True, model_kwargs={"export": True}
    )
    model.save_pretrained(str(folder))
    export_dynamic_quantized_onnx_model(model, INT8_CONFIG, str(folder))
    chroma.mkdir(parents=True, exist_ok=True)
    for name in CHROMA_FILES:
        shutil.copy(source / name, chroma / name)
    shutil.copy(folder / "onnx" / "model.onnx", chroma / "model.onnx")
    shutil.rmtree(out / "chroma", ignore_errors=True)
    chroma.parent.rename(out / "chroma")


@app.command()
def indexes(
    documents: Annotated[Path, typer.Option(help="Lines of {id, text}.")],
    cache: Annotated[Path, typer.Option(help="Where `weights` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder of this collection.")],
    peer: Annotated[list[str], typer.Option(help="a, b, c, d; may be repeated.")],
) -> None:
    """Builds the index of each participating peer over the same documents."""
    lines = [json.loads(line) for line in documents.open(encoding="utf-8")]
    ids, texts = [line["id"] for line in lines], [line["text"] for line in lines]
    (out / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
    if {"a", "d"} & set(peer):
        vectors = _flat(cache, out, texts, "torch")
    if "b" in peer:
        _flat(cache, out, texts, "onnx")
    if "c" in peer:
        _txtai(cache, out, ids, texts)
    if "d" in peer:
        _chroma(cache, out, ids, vectors)


def int8_file(weights: Path) -> str:
    """The int8 weights for this kind of CPU, under sentence-transformers' file name."""
    (file,) = (weights / "onnx").glob(f"*{INT8_CONFIG}.onnx")
    return f"onnx/{file.name}"


def _flat(cache: Path, out: Path, texts: list[str], backend: Literal["torch", "onnx"]) -> Any:
    """Peers (a) and (b): documents and queries use the same model; returns the vectors."""
    import faiss
    from sentence_transformers import SentenceTransformer

    file = out / (f"minilm-{INT8_CONFIG}.faiss" if backend == "onnx" else "minilm-torch.faiss")
    if file.exists():
        return faiss.read_index(str(file)).reconstruct_n()
    kwargs = {"file_name": int8_file(cache / "minilm")} if backend == "onnx" else {}
    model = SentenceTransformer(
        str(cache / "minilm"), device="cpu", backend=backend, local_files_only=True, model_kwargs=kwargs
    )
    vectors = model.encode(texts, normalize_embeddings=True)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(file))
    return vectors


def _txtai(cache: Path, out: Path, ids: list[str], texts: list[str]) -> None:
    """Peer (c): its own index of its own vectors, and the configuration file of its API."""
    from txtai import Embeddings

    config = {"path": str(out / "txtai"), "embeddings": {"path": str(cache / "minilm"), "gpu": False}}
    (out / "txtai.yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    if not (out / "txtai").exists():
        embeddings = Embeddings(path=str(cache / "minilm"), gpu=False)
        embeddings.index(zip(ids, texts, [None] * len(ids), strict=True))
        embeddings.save(str(out / "txtai"))


def _chroma(cache: Path, out: Path, ids: list[str], vectors: Any) -> None:
    """Peer (d): uses the vectors of (a), because its own document embedding is equal but slower."""
    import chromadb
    from chromadb.config import Settings
    from chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2 import ONNXMiniLM_L6_V2

    if (out / "chroma").exists():
        return
    client = chromadb.PersistentClient(str(out / "chroma.tmp"), Settings(anonymized_telemetry=False))
    collection = client.create_collection("documents", embedding_function=ONNXMiniLM_L6_V2())
    for start in range(0, len(ids), CHUNK):
        part = slice(start, start + CHUNK)
        collection.add(ids=ids[part], embeddings=vectors[part])
    (out / "chroma.tmp").rename(out / "chroma")


if __name__ == "__main__":
    app()
