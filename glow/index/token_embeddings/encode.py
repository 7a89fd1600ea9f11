"""Encodes documents with a re-ranker's first layers, as the codes that an index stores.

t   tokens of a batch       b   bytes of a token's codes
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glow.artifact import RERANKER_SHAPE
from glow.errors import ConfigError
from glow.index.encoding import Records, Texts
from glow.index.token_embeddings.codes import CodedStates, StateBits, code_bytes
from glow.index.token_embeddings.format import StatesHeader
from glow.runtime import Device, DocumentReader, Model, RerankerShape, reranker_preprocessor
from glow.text import TermTable

__all__ = ["StatesEncoder", "StatesJob", "coded_of", "states_header"]


@dataclass(frozen=True, slots=True)
class StatesJob:
    """The re-ranker, and how its token embeddings are stored.

    Attributes:
        folder: the re-ranker's directory, or an index version's copy; absolute.
        size: numbers per token.
        bits: per number.
    """

    folder: Path
    size: int
    bits: StateBits

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a token: its codes, and below 16 bits its scale."""
        codes = ("codes", "u1", (code_bytes(self.size, self.bits),))
        return np.dtype([codes] if self.bits == 16 else [("scale", "<f2"), codes])

    def open(self, model: Model, terms: TermTable, device: Device) -> "StatesEncoder":
        """Opens the re-ranker, whose files must be verified; arguments and errors as for `EncodeJob`."""
        preprocessor = reranker_preprocessor(self.folder, terms)
        return StatesEncoder(DocumentReader(self.folder, preprocessor, device), self)


class StatesEncoder:
    """Encodes documents as codes; safe to use from many threads.

    Args:
        reader: of the re-ranker.
        job: parameters of the store.
    """

    reads: tuple[str, ...] = ()

    def __init__(self, reader: DocumentReader, job: StatesJob) -> None:
        self._reader = reader
        self._job = job

    def encode(self, batch: Texts) -> Records:
        """Codes of documents or passages, at least one, in the order given.

        Raises:
            ValueError: if a number is not finite, because the re-ranker is broken.
        """
        coded = CodedStates.of(self._reader.read(batch.texts), self._job.bits)
        records = np.empty(len(coded.codes), self._job.dtype)
        records["codes"] = coded.codes
        if self._job.bits != 16:
            records["scale"] = coded.scales
        return Records(records, coded.lengths)


def coded_of(records: Records) -> CodedStates:
    """Stored documents from records of `StatesEncoder`."""
    tokens = records.records
    scales = tokens["scale"] if "scale" in (tokens.dtype.names or ()) else np.empty(0, np.float16)
    return CodedStates(records.counts, tokens["codes"], scales)


def states_header(folder: Path, digest: str, bits: StateBits) -> StatesHeader:
    """The header of a re-ranker's store, with counts of 0.

    Args:
        folder: the re-ranker's directory, verified.
        digest: its hash.
        bits: per number.

    Raises:
        ConfigError: if fewer than 16 bits are requested of a re-ranker without a compressor.
    """
    shape = RerankerShape.load(folder / RERANKER_SHAPE)
    if not shape.compressed and bits != 16:
        raise ConfigError(
            f"--rerank-bits {bits}: {folder.name} has no compressor, and its token embeddings of {shape.size} numbers need 16"
        )
    return StatesHeader(
        model=digest,
        split=shape.split,
        size=shape.size,
        bits=bits,
        position_start=shape.query_tokens,
        document_tokens=shape.document_tokens,
        documents=0,
        tokens=0,
    )
