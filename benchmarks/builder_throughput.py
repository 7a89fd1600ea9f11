"""Compares documents per second of a whole index build with sentence-transformers' encoding alone.

Both read at most 128 tokens of the same documents, on all cores, in one run. Needs `pip install sentence-transformers`.

    python -m benchmarks.builder_throughput --corpus $DATA/medquad/corpus.jsonl [--documents 3000]
"""

import shutil
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.report import emit_json
from glow.artifact import default_model, write_artifact
from glow.artifact.manifest import file_records
from glow.artifact.model import model_hash
from glow.collection import read_documents
from glow.nn.bert import minilm_folder
from glow.schema import FieldSchema
from glow.training.teacher import joined_text

TOKENS = 128


def main(
    corpus: Annotated[Path, typer.Option(help="corpus.jsonl of a data folder.")],
    documents: Annotated[int, typer.Option(help="How many of its documents.")] = 3000,
    model: Annotated[Path | None, typer.Option(help="Model folder; default: models/DEFAULT.")] = None,
    rounds: Annotated[int, typer.Option(help="Times each side runs; they take turns.")] = 2,
) -> None:
    """Prints documents per second of both, and their ratio, as JSON."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _shorten(model or default_model(), folder / "model")
        sample = folder / "sample.jsonl"
        with corpus.open("rb") as source:
            sample.write_bytes(b"".join(islice(source, documents)))
        ours, theirs = [], []
        for number in range(rounds):
            ours.append(documents / _build(folder, sample, number))
            theirs.append(documents / _encode(sample))
    report = {
        "documents": documents,
        "tokens": TOKENS,
        "index_builder_documents_per_second": [round(value, 1) for value in ours],
        "sentence_transformers_documents_per_second": [round(value, 1) for value in theirs],
        "ratio": round(max(ours) / max(theirs), 2),
    }
    emit_json(report)


def _shorten(model: Path, out: Path) -> None:
    """The same model with a limit of 128 document tokens."""
    with write_artifact(out, "model") as writer:
        shutil.copytree(model, writer.folder, dirs_exist_ok=True, ignore=lambda *_: ["manifest.json"])
        schema = FieldSchema.load(model / "schema.json").model_copy(update={"document_tokens": TOKENS})
        schema.save(writer.folder / "schema.json")
        writer.hashes["model"] = model_hash(file_records(writer.folder))


def _build(folder: Path, sample: Path, number: int) -> float:
    """Seconds of a whole build command: process start, both passes, index, verification and publication."""
    command = [sys.executable, "-m", "glow", "build", "--model", str(folder / "model")]
    start = time.perf_counter()
    subprocess.run(
        [*command, "--input", str(sample), "--index-root", str(folder / f"index{number}")],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parent.parent,
    )
    return time.perf_counter() - start


def _encode(sample: Path) -> float:
    """Seconds of sentence-transformers' `encode` alone in fp32, without loading the model."""
    from sentence_transformers import SentenceTransformer

    names = FieldSchema.preset("glow-default").names
    texts = [joined_text(document) for document in read_documents(sample, names)]
    encoder = SentenceTransformer(str(minilm_folder()), device="cpu")
    encoder.max_seq_length = TOKENS
    encoder.encode(texts[:32])
    start = time.perf_counter()
    encoder.encode(texts, batch_size=32, normalize_embeddings=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    typer.run(main)
