"""Encoding a shard: stored documents, or their passages, become vectors, in bounded memory.

A shard's vectors depend on its documents and on nothing else: not on threads, processes, or what was tried before. So
chunks are cut inside it, and the tower runs on one thread.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from glow.errors import GlowError
from glow.index.learned_sparse import LearnedWords
from glow.index.passages import PassageMap
from glow.index.stored_fields import DocumentStore
from glow.index.token_embeddings import CodedStates
from glow.records import Document
from glow.runtime import DEFAULT_BATCH_TOKENS, Device, Encoder, Model, preprocess_documents
from glow.text import Preprocessor, TermTable, WeightedTokens
from glow_index_builder.encoding.learned import LearnedEncoder, LearnedJob
from glow_index_builder.encoding.passages import passages_of_document
from glow_index_builder.encoding.shards import EncodedPart, Shard, ShardReport, write_shard
from glow_index_builder.encoding.states import StatesEncoder, StatesJob

__all__ = ["EncodeError", "EncodeJob", "ShardEncoder", "batch_tokens"]

CPU_BATCH_TOKENS = 512
"""Small batches stay in a core's cache: 16 ms of CPU a document against 20 at 4,096 tokens (3 layers, 155 tokens)."""
CHUNK_DOCUMENTS = 256
CHUNK_CHARACTERS = 4 << 20


class EncodeError(GlowError):
    """A document that cannot be encoded; it becomes a reject, and never an error of the build."""


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """Where all that encoding needs lies: what a process or machine is told before it gets shards.

    Attributes:
        model: folder of the model.
        store: the document store.
        terms: folder of the index's term table.
        passages: folder of the map of passages; None where documents stay whole.
        shards: folder that shards are written to.
        device: where the tower runs.
        threads: shards that one process encodes at the same time, >= 1.
        states: what else is made of documents, for a re-ranker; None for nothing.
        learned: what makes learned impacts of them; None for none.
    """

    model: Path
    store: Path
    terms: Path
    passages: Path | None
    shards: Path
    device: Device
    threads: int
    states: StatesJob | None = None
    learned: LearnedJob | None = None


class ShardEncoder:
    """What encodes shards, open; safe to use from many threads.

    Args:
        preprocessor: with the index's term table.
        encoder: the document tower, whose own threads are one.
        store: the documents.
        passages: where they are cut; None: they stay whole.
        folder: that shards are written to.
        states: makes term representations; None: there are none.
        learned: makes vectors and learned impacts in the encoder's place; None: there are none.
    """

    def __init__(
        self,
        preprocessor: Preprocessor,
        encoder: Encoder,
        store: DocumentStore,
        passages: PassageMap | None,
        folder: Path,
        states: StatesEncoder | None = None,
        learned: LearnedEncoder | None = None,
    ) -> None:
        self._preprocessor = preprocessor
        self._encoder = encoder
        self._store = store
        self._passages = passages
        self._folder = folder
        self._states = states
        self._learned = learned

    @classmethod
    def open(cls, job: EncodeJob) -> Self:
        """Opens what a job names.

        Raises:
            ArtifactError: if the model is gone or damaged.
            DeviceError: if the device is not there.
        """
        model, terms = Model.open(job.model), TermTable.load(job.terms)
        tokens = batch_tokens(job.device)
        return cls(
            model.with_terms(terms),
            model.encoder("document", job.device, 1, tokens),
            DocumentStore(job.store),
            PassageMap.open(job.passages) if job.passages else None,
            job.shards,
            StatesEncoder.open(job.states, terms, job.device) if job.states else None,
            LearnedEncoder.open(model, job.learned, job.device, tokens) if job.learned else None,
        )

    def encode(self, shard: Shard) -> ShardReport | None:
        """Encodes a shard and writes it; a probe is encoded, and nothing comes of it.

        Raises:
            EncodeError: if a vector or a term representation is not finite.
            OSError: if the disk is full or cannot be written.
        """
        ids: list[str] = []
        parts = self._parts(shard, ids)
        if not shard.is_probe:
            return write_shard(self._folder, shard, ids, parts)
        for _ in parts:
            pass
        return None

    def _parts(self, shard: Shard, ids: list[str]) -> Iterator[EncodedPart]:
        for chunk in _chunks(self._texts(shard, ids)):
            for texts, lost, sequences in preprocess_documents(chunk, self._preprocessor):
                vectors, words = self._encoded(texts, sequences)
                finite = np.isfinite(vectors).all(axis=1)
                if not finite.all():
                    bad = texts[int(np.flatnonzero(~finite)[0])].id
                    raise EncodeError(f"the vector of document {bad!r} is not finite")
                yield EncodedPart(lost, vectors, self._coded(texts), words)

    def _encoded(
        self, texts: list[Document], sequences: list[WeightedTokens]
    ) -> tuple[NDArray[np.float32], list[LearnedWords] | None]:
        if self._learned is None:
            return self._encoder.encode(sequences), None
        try:
            return self._learned.encode(sequences, texts)
        except ValueError as error:
            raise EncodeError(str(error)) from error

    def _coded(self, texts: list[Document]) -> CodedStates | None:
        if self._states is None:
            return None
        try:
            return self._states.encode(texts)
        except ValueError as error:
            raise EncodeError(f"of the documents from {texts[0].id!r} on, {error}") from error

    def _texts(self, shard: Shard, ids: list[str]) -> Iterator[Document]:
        """The documents or passages of a shard; `ids` gets the documents'."""
        skip = {row for row, _ in shard.skip}
        for row, document in enumerate(self._store.scan(shard.start, shard.stop), shard.start):
            if row in skip:
                continue
            ids.append(document.id)
            if self._passages is None:
                yield document
            else:
                yield from passages_of_document(document, row, self._passages)


def batch_tokens(device: Device) -> int:
    """Tokens of a batch that suit a device."""
    return CPU_BATCH_TOKENS if device == "cpu" else DEFAULT_BATCH_TOKENS


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Cuts a stream by number and by size, so that long documents take no more memory than short ones."""
    chunk: list[Document] = []
    characters = 0
    for document in documents:
        chunk.append(document)
        characters += sum(len(value) for values in document.fields.values() for value in values)
        if len(chunk) == CHUNK_DOCUMENTS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
