"""An open model artifact: verified files, its preprocessor, and encoders on demand."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, Manifest, open_model
from glow.records import Document
from glow.runtime.encoder import DEFAULT_BATCH_TOKENS, Encoder
from glow.runtime.session import Device
from glow.text import Preprocessor, TermTable, WeightedTokens, load_preprocessor

__all__ = ["Model", "preprocess_documents"]

# Sorting 512 documents by length leaves hardly any padding; more would only take more memory.
CHUNK_DOCUMENTS = 512


@dataclass(frozen=True, slots=True)
class Model:
    """A verified model directory.

    Attributes:
        folder: the directory.
        manifest: its manifest.
        hash: the model hash (ARCHITECTURE.md section 3).
        preprocessor: with the model's own term statistics.
    """

    folder: Path
    manifest: Manifest
    hash: str
    preprocessor: Preprocessor

    @classmethod
    def open(cls, folder: Path) -> "Model":
        """Verifies and opens a model directory.

        Raises:
            ArtifactError, ConfigError: if it is missing, damaged, or not a model.
        """
        manifest, digest = open_model(folder)
        return cls(folder, manifest, digest, load_preprocessor(folder))

    @property
    def label(self) -> str:
        """Name and short hash for people: `glow-mini@sha256:ab12cd34`."""
        return f"{self.manifest.name}@sha256:{self.hash[:8]}"

    def with_terms(self, terms: TermTable, *, caps_unknown: bool = False) -> Preprocessor:
        """The model's preprocessor with other term statistics (an index has its own); arguments as for `Preprocessor`."""
        own = self.preprocessor
        return Preprocessor(own.pieces, own.schema, own.weighting, terms, caps_unknown=caps_unknown)

    def encoder(
        self,
        tower: Literal["query", "document"],
        device: Device = "cpu",
        threads: int = 1,
        batch_tokens: int = DEFAULT_BATCH_TOKENS,
    ) -> Encoder:
        """Opens one of the towers; arguments as for `Encoder`."""
        file = QUERY_TOWER if tower == "query" else DOCUMENT_TOWER
        return Encoder(self.folder / file, self.preprocessor.pieces.pad_id, device, threads, batch_tokens)


def preprocess_documents(
    documents: Iterable[Document], preprocessor: Preprocessor
) -> Iterator[tuple[list[Document], dict[str, int], list[WeightedTokens]]]:
    """Preprocesses a stream of documents in bounded memory.

    Yields:
        A chunk of documents; per field, how many of them lost words to its token limit; the tower's inputs, in order.
    """
    stream = iter(documents)
    while chunk := list(islice(stream, CHUNK_DOCUMENTS)):
        sequences = [preprocessor.document(document) for document in chunk]
        truncated: dict[str, int] = {}
        for sequence in sequences:
            for field in sequence.dropped_words:
                truncated[field] = truncated.get(field, 0) + 1
        yield chunk, truncated, sequences
