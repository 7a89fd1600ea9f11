"""An open model artifact: verified files, its preprocessor, and encoders on demand."""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER, Manifest, open_model
from glow.errors import FormatError
from glow.records import Document
from glow.runtime.encoder import DEFAULT_BATCH_TOKENS, Device, Encoder
from glow.text import Preprocessor, TermTable, WeightedTokens, idf_of_words, load_preprocessor

TERMS = "terms"
"""Extra output of `document-terms.onnx`: float32 [B, L, K], L2-normalized."""
_SHAPES = {
    "projection": 2, "bias": 1, "gain_weight": 1, "gain_bias": 0, "gain_idf": 0, "scale": 0, "cut": 0, "priors": 1, "words": 1,
}  # fmt: skip
_CHUNK_WORDS = 2048


@dataclass(frozen=True, slots=True, eq=False)
class LearnedHead:
    """Weights of the head, stored in `learned.npz`."""

    projection: NDArray[np.float32]  # float32 [D, K], from a word's vector to its direction
    bias: NDArray[np.float32]  # float32 [K]
    # A word's gain, in the unit of BM25's impacts: scale · softplus(vector · gain_weight + gain_bias + gain_idf · idf)
    gain_weight: NDArray[np.float32]  # float32 [D]
    gain_bias: float
    gain_idf: float
    scale: float
    cut: float  # cosine below which a token contributes nothing to a word, > -1
    words: tuple[str, ...]  # of queries
    priors: NDArray[np.float32]  # float32 > 0, frequency of each among all words of the training queries

    @property
    def dimensions(self) -> int:
        """K."""
        return len(self.bias)

    def directions(
        self,
        words: Sequence[str],
        preprocessor: Preprocessor,  # of the index, whose term statistics give the words' idf
        encoder: Encoder,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Directions of words, float32 [W, K], L2-normalized, and their gains, float32 [W], > 0."""
        directions = np.empty((len(words), self.dimensions), np.float32)
        gains = np.empty(len(words), np.float32)
        for start in range(0, len(words), _CHUNK_WORDS):
            chunk = words[start : start + _CHUNK_WORDS]
            vectors = encoder.encode([preprocessor.query(word) for word in chunk])
            projected = vectors @ self.projection + self.bias
            norms = np.linalg.norm(projected, axis=1, keepdims=True)
            directions[start : start + len(chunk)] = projected / norms
            idf = idf_of_words(chunk, preprocessor.terms)
            raised = vectors @ self.gain_weight + self.gain_bias + self.gain_idf * idf
            gains[start : start + len(chunk)] = self.scale * np.logaddexp(0.0, raised)
        return directions, gains

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {
            name: np.asarray(getattr(self, name), np.float32) for name in _SHAPES if name != "words"
        }
        arrays["words"] = np.frombuffer("\n".join(self.words).encode(), np.uint8)
        with path.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> "LearnedHead":
        """Reads the file, which must be verified already."""
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                arrays = {name: file[name] for name in _SHAPES}
            words = tuple(arrays.pop("words").tobytes().decode().split("\n"))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise FormatError(
                f"{path.name} cannot be read: {error}; export the learned impacts again"
            ) from error
        wrong = [
            name
            for name, array in arrays.items()
            if array.ndim != _SHAPES[name] or not np.isfinite(array).all()
        ]
        fits = len(words) == arrays["priors"].size and arrays["projection"].shape[1:] == arrays["bias"].shape
        if wrong or not fits:
            raise FormatError(
                f"{path.name}: {', '.join(wrong) or 'its arrays'} do not fit; export the learned impacts again"
            )
        numbers = {name: float(arrays.pop(name)) for name in ("gain_bias", "gain_idf", "scale", "cut")}
        parts: dict[str, Any] = {**arrays, **numbers}
        return cls(**parts, words=words)


# Sorting 512 documents by length leaves hardly any padding; more would only take more memory.
CHUNK_DOCUMENTS = 512


@dataclass(frozen=True, slots=True)
class Model:
    """A verified model directory."""

    folder: Path
    manifest: Manifest
    hash: str  # the model hash (ARCHITECTURE.md section 3)
    preprocessor: Preprocessor  # with the model's own term statistics

    @classmethod
    def open(cls, folder: Path) -> "Model":
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
        file = QUERY_TOWER if tower == "query" else DOCUMENT_TOWER
        return Encoder(self.folder / file, self.preprocessor.pieces.pad_id, device, threads, batch_tokens)


def preprocess_documents(
    documents: Iterable[Document], preprocessor: Preprocessor
) -> Iterator[tuple[list[Document], dict[str, int], list[WeightedTokens]]]:
    """Yields documents in chunks, for each field how many of them lost words to its token limit, and the tower's inputs."""
    stream = iter(documents)
    while chunk := list(islice(stream, CHUNK_DOCUMENTS)):
        sequences = [preprocessor.document(document) for document in chunk]
        truncated: dict[str, int] = {}
        for sequence in sequences:
            for field in sequence.dropped_words:
                truncated[field] = truncated.get(field, 0) + 1
        yield chunk, truncated, sequences
