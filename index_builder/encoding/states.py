"""Term representations: what a re-ranker's layers apart make of each document, in the codes that an index stores."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from glow.artifact import RERANKER_SHAPE
from glow.errors import ConfigError
from glow.index.token_embeddings import CodedStates, StateBits, StatesHeader
from glow.records import Document
from glow.runtime import Device, DocumentReader, RerankerShape, reranker_preprocessor
from glow.text import TermTable

__all__ = ["StatesEncoder", "StatesJob", "states_header"]


@dataclass(frozen=True, slots=True)
class StatesJob:
    """What reads documents, and in how many bits it is stored.

    Attributes:
        folder: of the re-ranker, or an index version's copy.
        bits: of a number.
    """

    folder: Path
    bits: StateBits


class StatesEncoder:
    """Documents to codes; safe to use from many threads.

    Args:
        reader: of the re-ranker.
        bits: of a number.

    Attributes:
        bits: as given.
    """

    def __init__(self, reader: DocumentReader, bits: StateBits) -> None:
        self._reader = reader
        self.bits = bits

    @classmethod
    def open(cls, job: StatesJob, terms: TermTable, device: Device = "cpu") -> Self:
        """Opens what a job names; its files were verified before.

        Raises:
            ArtifactError: if it is gone or damaged.
            DeviceError: if the device is not there.
        """
        preprocessor = reranker_preprocessor(job.folder, terms)
        return cls(DocumentReader(job.folder, preprocessor, device), job.bits)

    def encode(self, documents: Sequence[Document]) -> CodedStates:
        """Codes of documents or passages, at least one, in the order given.

        Raises:
            ValueError: if a state is not finite, so that the re-ranker is broken.
        """
        return CodedStates.of(self._reader.read(documents), self.bits)


def states_header(folder: Path, digest: str, bits: StateBits) -> StatesHeader:
    """The header of a store by a re-ranker, its counts 0.

    Args:
        folder: of the re-ranker, which was verified.
        digest: its hash.
        bits: of a number.

    Raises:
        ConfigError: if fewer than 16 bits are to hold what is not compressed.
    """
    shape = RerankerShape.load(folder / RERANKER_SHAPE)
    if not shape.compressed and bits != 16:
        raise ConfigError(
            f"--rerank-bits {bits}: {folder.name} has no compressor, and its states of {shape.size} numbers need 16"
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
