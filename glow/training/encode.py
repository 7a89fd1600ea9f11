"""Encodes texts with torch towers or a model: for a step's gradients, without them, or a corpus into an exact index.

Gradient caching (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup") encodes
a batch that is larger than memory without gradients and takes the loss's gradient of the vectors. It then encodes group
after group again, each with its part of that gradient. The result is the whole batch's gradient except for rounding.

n is the number of sequences, H the dimensions of a vector.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
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
from glow.training.checkpoint import kind_of, load_checkpoint

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
    chunk_size: int = 0  # most texts per group in gradient caching

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
    groups = _groups(sequences, GROUP_TEXTS)
    encoded = torch.cat([encoding.run(tower, [sequences[row] for row in rows]) for rows in groups])
    order = torch.tensor([row for rows in groups for row in rows], device=encoded.device)
    return encoded[torch.argsort(order)]


class CachedBatch:
    """Vectors of one side of a batch, encoded without gradients, that can be encoded again with gradients.

    `vectors`: float32 [n, H], a leaf that collects the loss's gradient.
    """

    def __init__(self, encoding: Encoding, tower: Tower, sequences: Sequence[WeightedTokens]) -> None:
        self._encoding, self._tower, self._sequences = encoding, tower, sequences
        self._groups = _groups(sequences, encoding.chunk_size)
        order = [row for rows in self._groups for row in rows]
        self._random = []  # dropout must be equal both times
        blocks = []
        with torch.no_grad():
            for rows in self._groups:
                self._random.append(_random_state(encoding.device))
                blocks.append(encoding.run(tower, [sequences[row] for row in rows]))
        self.vectors = torch.cat(blocks)[torch.argsort(torch.tensor(order, device=encoding.device))]
        self.vectors.requires_grad_()

    def backward(self) -> None:
        """Propagates the loss's gradient of the vectors through the tower."""
        gradient = self.vectors.grad
        if gradient is None or not next(self._tower.layers.parameters()).requires_grad:
            return
        for rows, state in zip(self._groups, self._random, strict=True):
            _set_random_state(self._encoding.device, state)
            encoded = self._encoding.run(self._tower, [self._sequences[row] for row in rows])
            encoded.backward(gradient[rows])  # type: ignore[no-untyped-call]


def _groups(sequences: Sequence[WeightedTokens], size: int) -> list[list[int]]:
    """Positions in groups of similar length, longest first."""
    order = sorted(range(len(sequences)), key=lambda number: -len(sequences[number]))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


BATCH_TOKENS = 8192
"""Most tokens of a batch, including padding."""
CHUNK_DOCUMENTS, CHUNK_QUERIES = 512, 256
Precision = Literal["bf16", "fp16", "fp32"]
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
