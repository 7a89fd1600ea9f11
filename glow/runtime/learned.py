"""Learned sparse retrieval: the head that computes how much a word adds to a document's score, from the directions of both.

A word's direction comes from its vector, which the query tower makes of the word alone; a token's comes from the document tower.
The other words of a query change nothing (query term independence), so a search runs neither tower.

    w(word, document) = gain(word) · relu(max over tokens of cos(word, token) - cut)

    W   words       L   tokens of a document        D   dimensions of a vector      K   dimensions of a direction
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from glow.errors import FormatError
from glow.runtime.encoder import Encoder
from glow.text import Preprocessor, idf_lucene

__all__ = ["TERMS", "LearnedHead"]

TERMS = "terms"
"""Extra output of `document-terms.onnx`: float32 [B, L, K], L2-normalized."""
_SHAPES = {
    "projection": 2, "bias": 1, "gain_weight": 1, "gain_bias": 0, "gain_idf": 0, "scale": 0, "cut": 0, "priors": 1, "words": 1,
}  # fmt: skip
_CHUNK_WORDS = 2048


@dataclass(frozen=True, slots=True, eq=False)
class LearnedHead:
    """Weights of the head, stored in `learned.npz`.

    Attributes:
        projection, bias: float32 [D, K] and [K], from a word's vector to its direction.
        gain_weight, gain_bias, gain_idf, scale: float32 [D] and three numbers. A word's gain, in the unit of BM25's impacts, is
            scale · softplus(vector · gain_weight + gain_bias + gain_idf · idf).
        cut: cosine below which a token contributes nothing to a word, > -1.
        words, priors: words of queries, and float32 > 0, the frequency of each among all words of the training queries.
    """

    projection: NDArray[np.float32]
    bias: NDArray[np.float32]
    gain_weight: NDArray[np.float32]
    gain_bias: float
    gain_idf: float
    scale: float
    cut: float
    words: tuple[str, ...]
    priors: NDArray[np.float32]

    @property
    def dimensions(self) -> int:
        """K."""
        return len(self.bias)

    def directions(
        self, words: Sequence[str], preprocessor: Preprocessor, encoder: Encoder
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Directions of words, float32 [W, K], L2-normalized, and their gains, float32 [W], > 0.

        Args:
            words: as `WordPieces.words` returns them.
            preprocessor: of the index, whose term statistics give the words' idf.
            encoder: the query tower.
        """
        directions = np.empty((len(words), self.dimensions), np.float32)
        gains = np.empty(len(words), np.float32)
        terms = preprocessor.terms
        for start in range(0, len(words), _CHUNK_WORDS):
            chunk = words[start : start + _CHUNK_WORDS]
            vectors = encoder.encode([preprocessor.query(word) for word in chunk])
            found = vectors @ self.projection + self.bias
            directions[start : start + len(chunk)] = found / np.linalg.norm(found, axis=1, keepdims=True)
            dfs = np.array([min(max(terms.df(word), 1), terms.documents) for word in chunk], np.float64)
            idf = idf_lucene(dfs, float(max(terms.documents, 1)))
            raised = vectors @ self.gain_weight + self.gain_bias + self.gain_idf * idf
            gains[start : start + len(chunk)] = self.scale * np.logaddexp(0.0, raised)
        return directions, gains

    def save(self, path: Path) -> None:
        """Writes the file."""
        arrays: dict[str, Any] = {
            name: np.asarray(getattr(self, name), np.float32) for name in _SHAPES if name != "words"
        }
        arrays["words"] = np.frombuffer("\n".join(self.words).encode(), np.uint8)
        with path.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> "LearnedHead":
        """Reads the file, which must be verified already.

        Raises:
            FormatError: if it is missing, damaged, or its arrays do not fit together.
        """
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                arrays = {name: file[name] for name in _SHAPES}
            words = tuple(arrays.pop("words").tobytes().decode().split("\n"))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise FormatError(
                f"{path.name} cannot be read: {error}; export the learned impacts again"
            ) from error
        ranks = {name: array.ndim for name, array in arrays.items()}
        wrong = [
            name for name in arrays if ranks[name] != _SHAPES[name] or not np.isfinite(arrays[name]).all()
        ]
        if (
            wrong
            or len(words) != len(arrays["priors"])
            or arrays["projection"].shape[1:] != arrays["bias"].shape
        ):
            raise FormatError(
                f"{path.name}: {', '.join(wrong) or 'its arrays'} do not fit; export the learned impacts again"
            )
        numbers = {name: float(arrays.pop(name)) for name in ("gain_bias", "gain_idf", "scale", "cut")}
        parts: dict[str, Any] = {**arrays, **numbers}
        return cls(**parts, words=words)
