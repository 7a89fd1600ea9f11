"""Encodes texts with torch towers or a model: for a step's gradients, without them, or a corpus into an exact index.

n is the number of sequences, H the dimensions of a vector.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

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
from glow.training.checkpoint import kind_of, load_checkpoint
from glow.training.run import Precision

GROUP_TEXTS, LENGTH_STEP = 16, 16
"""Texts per group, and the multiple that its length is rounded up to. Each distinct shape costs memory permanently in
the CPU's kernels (a long run grew to several times its size), so there are few shapes, and little padding."""
Autocast = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of a batch."""

    pad_id: int  # id of [PAD]
    device: torch.device  # device of the towers
    autocast: Autocast  # context of the matrix products' precision

    def run(self, tower: Tower, sequences: Sequence[WeightedTokens]) -> Tensor:
        """Vectors float32 [n, H] of one group, padded to its longest text."""
        longest = max(len(sequence) for sequence in sequences)
        rounded = -(-longest // LENGTH_STEP) * LENGTH_STEP
        batch = pad(sequences, self.pad_id, min(rounded, tower.max_tokens))
        inputs = (batch.ids, batch.mask, batch.field_ids, batch.weights)
        with self.autocast():
            return tower(*(torch.from_numpy(array).to(self.device) for array in inputs)).float()  # type: ignore[no-any-return]


def encode(encoding: Encoding, tower: Tower, sequences: Sequence[WeightedTokens]) -> Tensor:
    """Vectors float32 [n, H] of a batch, with gradients."""
    # in groups of similar length, longest first
    longest_first = sorted(range(len(sequences)), key=lambda number: -len(sequences[number]))
    groups = [longest_first[start : start + GROUP_TEXTS] for start in range(0, len(sequences), GROUP_TEXTS)]
    encoded = torch.cat([encoding.run(tower, [sequences[row] for row in rows]) for rows in groups])
    return encoded[torch.argsort(torch.tensor(longest_first, device=encoded.device))]


BATCH_TOKENS = 8192
"""Most tokens of a batch, including padding."""
CHUNK_DOCUMENTS, CHUNK_QUERIES = 512, 256
Encode = Callable[[Sequence[WeightedTokens]], NDArray[np.float32]]


def vectors(
    tower: Tower,
    sequences: Sequence[WeightedTokens],
    pad_id: int,  # id of [PAD] in the vocabulary
    precision: str = "bf16",
    device: str = "cpu",
) -> NDArray[np.float32]:
    """Encodes sequences in batches of similar length, without gradients and dropout.

    The tower is moved to `device` and stays there; its mode (training or evaluation) is restored.

    Returns float32 [n, H], L2-normalized, row i for sequence i; [0, H] without sequences.
    """
    encoded = np.empty((len(sequences), tower.dimensions), np.float32)
    was_training = tower.training
    tower.to(device).eval()
    try:
        with (
            torch.inference_mode(),
            torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision != "fp32"),
        ):
            for rows in batches_by_length([len(sequence) for sequence in sequences], BATCH_TOKENS):
                batch = pad([sequences[row] for row in rows], pad_id)
                arrays = (batch.ids, batch.mask, batch.field_ids, batch.weights)
                raw: Tensor = tower(*(torch.from_numpy(array).to(device) for array in arrays))
                # With autocast the pooling may end in bfloat16, whose rounding changes lengths by up to 0.4 %.
                encoded[rows] = nn.functional.normalize(raw.float(), dim=-1).cpu().numpy()
    finally:
        tower.train(was_training)
    return encoded


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How a model or a checkpoint encodes."""

    device: Device = "cpu"  # `cpu` or `cuda`
    threads: int = 1  # of an ONNX tower, >= 1; torch's are set once for the process
    precision: Precision = "bf16"  # of a checkpoint's towers; a model has a fixed one


@dataclass(frozen=True, slots=True)
class Source:
    """Both towers of a model or checkpoint, ready to encode."""

    # name, hash: the artifact's; a model's hash is the model hash, a checkpoint's its manifest's
    name: str
    hash: str
    preprocessor: Preprocessor  # with the artifact's own term statistics
    # queries, documents: encode sequences into float32 [n, H], L2-normalized
    queries: Encode
    documents: Encode


def open_source(folder: Path, options: EncodeOptions) -> Source:
    """Opens a model (ONNX towers) or a checkpoint (torch towers)."""
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

    `vectors`: float32 [documents, H], L2-normalized.
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
        own, counter = source.preprocessor, TermCounter()
        for document in counted:
            counter.add(field_words(document, own.schema, own.pieces))
        # with the default term statistics of an index of these documents
        terms = select_terms("corpus", counter.table(), own.terms)
        self._preprocessor = Preprocessor(own.pieces, own.schema, own.weighting, terms)
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
