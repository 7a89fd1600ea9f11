"""Encodes for training: with torch towers, or a corpus by a model or checkpoint into an exact index.

n is the number of sequences, H the dimensions of a vector.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glow.artifact import QUERY_TOWER
from glow.errors import ArtifactNotFoundError
from glow.evaluation import Run
from glow.index.vectors import build_dense
from glow.nn import Tower
from glow.records import Document, Hit, Query
from glow.runtime import Device, Model
from glow.text import (
    Preprocessor,
    TermCounter,
    WeightedTokens,
    batches_by_length,
    field_words,
    pad,
    select_terms,
)
from glow.training.checkpoint import load_checkpoint
from glow.training.run import kind_of

__all__ = ["BATCH_TOKENS", "EncodeOptions", "EncodedCorpus", "Precision", "Source", "open_source", "vectors"]

BATCH_TOKENS = 8192
"""Most tokens of a batch, including padding."""
CHUNK_DOCUMENTS, CHUNK_QUERIES = 512, 256
Precision = Literal["bf16", "fp16", "fp32"]
Encode = Callable[[Sequence[WeightedTokens]], NDArray[np.float32]]


def vectors(
    tower: Tower,
    sequences: Sequence[WeightedTokens],
    pad_id: int,
    precision: str = "bf16",
    device: str = "cpu",
) -> NDArray[np.float32]:
    """Encodes sequences in batches of similar length, without gradients and dropout.

    The tower is moved to `device` and stays there; its mode (training or evaluation) is restored.

    Args:
        tower: query or document tower.
        sequences: any number, preprocessed for that tower.
        pad_id: id of [PAD] in the vocabulary.
        precision: `bf16` or `fp16` autocast of the matrix products, or `fp32`.
        device: name of a torch device.

    Returns:
        float32 [n, H], L2-normalized, row i for sequence i; [0, H] without sequences.
    """
    encoded = np.empty((len(sequences), tower.dimensions), np.float32)
    was_training = tower.training
    tower.to(device).eval()
    kind = torch.float16 if precision == "fp16" else torch.bfloat16
    try:
        with (
            torch.inference_mode(),
            torch.autocast(torch.device(device).type, kind, enabled=precision != "fp32"),
        ):
            for rows in batches_by_length([len(sequence) for sequence in sequences], BATCH_TOKENS):
                encoded[rows] = _run(tower, [sequences[row] for row in rows], pad_id, device)
    finally:
        tower.train(was_training)
    return encoded


def _run(tower: Tower, sequences: Sequence[WeightedTokens], pad_id: int, device: str) -> NDArray[np.float32]:
    batch = pad(sequences, pad_id)
    arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
    raw: Tensor = tower(*(torch.from_numpy(array).to(device) for array in arrays))
    # With autocast the pooling may end in bfloat16, whose rounding changes lengths by up to 0.4 %.
    unit: NDArray[np.float32] = nn.functional.normalize(raw.float(), dim=-1).cpu().numpy()
    return unit


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How a model or a checkpoint encodes.

    Attributes:
        device: `cpu` or `cuda`.
        threads: of an ONNX tower, >= 1; torch's are set once for the process.
        precision: of a checkpoint's towers; a model has a fixed one.
    """

    device: Device = "cpu"
    threads: int = 1
    precision: Precision = "bf16"


@dataclass(frozen=True, slots=True)
class Source:
    """Both towers of a model or checkpoint, ready to encode.

    Attributes:
        name, hash: the artifact's; a model's hash is the model hash, a checkpoint's its manifest's.
        preprocessor: with the artifact's own term statistics.
        queries, documents: encode sequences into float32 [n, H], L2-normalized.
    """

    name: str
    hash: str
    preprocessor: Preprocessor
    queries: Encode
    documents: Encode


def open_source(folder: Path, options: EncodeOptions) -> Source:
    """Opens a model (ONNX towers) or a checkpoint (torch towers).

    Raises:
        ArtifactNotFoundError: if the directory is neither.
        ArtifactError: if it is damaged.
        DeviceError: if the device is missing.
    """
    if (folder / QUERY_TOWER).is_file():
        model = Model.open(folder)
        query, document = (
            model.encoder(tower, options.device, options.threads) for tower in ("query", "document")
        )
        return Source(model.manifest.name, model.hash, model.preprocessor, query.encode, document.encode)
    if kind_of(folder) != "towers":
        raise ArtifactNotFoundError(
            f"{folder} is neither a model (it lacks {QUERY_TOWER}) nor a checkpoint of towers"
        )
    checkpoint = load_checkpoint(folder)
    towers, pad_id = checkpoint.towers, checkpoint.preprocessor.pieces.pad_id

    def encode(tower: Tower) -> Encode:
        return lambda sequences: vectors(tower, sequences, pad_id, options.precision, options.device)

    manifest = checkpoint.manifest
    return Source(
        manifest.name, manifest.hash, checkpoint.preprocessor, encode(towers.query), encode(towers.document)
    )


class EncodedCorpus:
    """Encoded documents in an exact vector index; idf comes from these documents, as in a built index.

    Args:
        source: the towers.
        documents: the corpus, each with text.
        progress: called with the number of encoded documents.
        statistics_of: the documents that idf comes from; None: the corpus.

    Attributes:
        ids: document ids; their positions are the rows.
        vectors: float32 [documents, H], L2-normalized.
    """

    def __init__(
        self,
        source: Source,
        documents: Sequence[Document],
        progress: Callable[[int, int], None] = lambda done, total: None,
        statistics_of: Sequence[Document] | None = None,
    ) -> None:
        self.source = source
        self.ids = [document.id for document in documents]
        counted = documents if statistics_of is None else statistics_of
        self._preprocessor = _on(source.preprocessor, counted)
        blocks = []
        for start in range(0, len(documents), CHUNK_DOCUMENTS):
            chunk = documents[start : start + CHUNK_DOCUMENTS]
            blocks.append(self.encode_documents(chunk))
            progress(start + len(chunk), len(documents))
        self.vectors = np.concatenate([*blocks, source.documents([])])
        self._index = build_dense(self.vectors, "flat")

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Vectors of queries, float32 [n, H], and whether each has words, bool [n]."""
        sequences = [self._preprocessor.query(text) for text in texts]
        return self.source.queries(sequences), np.array([bool(s.words) for s in sequences], np.bool_)

    def encode_documents(self, documents: Sequence[Document]) -> NDArray[np.float32]:
        """Vectors of documents, float32 [n, H]."""
        return self.source.documents([self._preprocessor.document(document) for document in documents])

    def nearest(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Descending scores and rows of the k nearest documents of each vector, as `DenseIndex.search`."""
        return self._index.search(queries, k)

    def search(self, queries: Sequence[Query], k: int) -> Run:
        """At most k hits of each query, best first; a query without words finds nothing."""
        run: dict[str, list[Hit]] = {}
        for start in range(0, len(queries), CHUNK_QUERIES):
            block = queries[start : start + CHUNK_QUERIES]
            encoded, has_words = self.encode([query.text for query in block])
            scores, rows = self.nearest(encoded, k)
            for i, query in enumerate(block):
                hits = zip(rows[i].tolist(), scores[i].tolist(), strict=True) if has_words[i] else ()
                run[query.id] = [Hit(self.ids[row], score) for row, score in hits]
        return run


def _on(own: Preprocessor, documents: Sequence[Document]) -> Preprocessor:
    """The preprocessor with the default term statistics of an index of these documents."""
    counter = TermCounter()
    for document in documents:
        counter.add(field_words(document, own.schema, own.pieces))
    terms = select_terms("corpus", counter.table(), own.terms)
    return Preprocessor(own.pieces, own.schema, own.weighting, terms)
