"""Checks that a model equals the trained encoder: torch against ONNX (if torch made it), and quantized against float.

n   texts       D   dimensions
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER
from glow.errors import ConfigError, ExportError
from glow.records import Document
from glow.runtime import Encoder
from glow.text import Preprocessor, WeightedTokens

MAX_DIFFERENCE = 1e-4
MIN_COSINE = 0.99
PARITY_TEXTS = 256


@dataclass(frozen=True, slots=True)
class TowerParity:
    """The differences between a tower's vectors before and after export."""

    texts: int  # number of texts compared
    max_difference: float | None  # largest absolute one between float ONNX and torch; None without torch
    mean_cosine: float  # between the shipped precision and float ONNX
    min_cosine: float
    invariance: float  # largest absolute difference between a text's vector alone and in a mixed batch


def check_parity(
    reference: NDArray[np.float32] | None,  # vectors in torch, [n, D]; None for an imported encoder
    float_path: Path,
    shipped_path: Path,
    sequences: Sequence[WeightedTokens],
    pad_id: int,
) -> TowerParity:
    """Compares a tower in torch, in float ONNX, and in the shipped precision, by texts of many lengths; refuses other vectors."""
    plain = Encoder(float_path, pad_id).encode(sequences)
    shipped = Encoder(shipped_path, pad_id)
    vectors = shipped.encode(sequences)
    if reference is None and not np.isfinite(plain).all():
        raise ConfigError("the encoder's vectors hold NaN or infinity; expected trained weights")
    trained = {} if reference is None else {"torch": reference}
    _check_finite(shipped_path.name, {**trained, "float ONNX": plain, "the shipped ONNX": vectors})
    cosines = (vectors * plain).sum(1)
    parity = TowerParity(
        texts=len(sequences),
        max_difference=None if reference is None else float(np.abs(plain - reference).max()),
        mean_cosine=float(cosines.mean()),
        min_cosine=float(cosines.min()),
        invariance=invariance(shipped, sequences[:64]),
    )
    difference = parity.max_difference or 0.0
    if difference > MAX_DIFFERENCE or parity.mean_cosine < MIN_COSINE:
        raise ExportError(
            f"{shipped_path.name} differs from the trained tower: max difference {difference:.2e} "
            f"(at most {MAX_DIFFERENCE:.0e}), mean cosine {parity.mean_cosine:.5f} (at least {MIN_COSINE}); "
            "give texts like those it was trained on (--parity-data, --split), or another precision (--quantize)"
        )
    return parity


def _check_finite(name: str, vectors: Mapping[str, NDArray[np.float32]]) -> None:
    """Refuses NaN and infinity; NaN would pass every threshold, since comparisons with it are false."""
    counts = {side: int((~np.isfinite(rows)).any(1).sum()) for side, rows in vectors.items()}
    if any(counts.values()):
        rows = ", ".join(f"{count} from {side}" for side, count in counts.items() if count)
        texts = len(next(iter(vectors.values())))
        raise ExportError(
            f"{name}: vectors of {texts} texts with NaN or infinity: {rows}; expected finite numbers. If torch's "
            "do, the trained tower is broken; if only the shipped ones do, choose another precision"
        )


def invariance(encoder: Encoder, sequences: Sequence[WeightedTokens]) -> float:
    """Largest absolute difference between a text's vector alone and in one padded batch of all."""
    alone = np.concatenate([encoder.encode([sequence]) for sequence in sequences])
    together = encoder.run(sequences)
    return float(np.abs(alone - together).max())


def parity_texts(
    preprocessor: Preprocessor, queries: Sequence[str] = (), documents: Sequence[Document] = ()
) -> dict[str, list[WeightedTokens]]:
    """Preprocessed texts for each tower's file, at most `PARITY_TEXTS`; generated unless both kinds are given."""
    if not queries or not documents:
        queries, documents = _made_up(preprocessor)
    return {
        QUERY_TOWER: [preprocessor.query(text) for text in queries[:PARITY_TEXTS]],
        DOCUMENT_TOWER: [preprocessor.document(document) for document in documents[:PARITY_TEXTS]],
    }


def _made_up(preprocessor: Preprocessor) -> tuple[list[str], list[Document]]:
    """Deterministic texts of words from the term statistics, with lengths up to the token limits."""
    random = np.random.default_rng(0)
    words = [word for word, _ in preprocessor.terms.items()] or ["nothing"]
    field = preprocessor.schema.fields[-1]

    def text(longest: int) -> str:
        return " ".join(random.choice(words, random.integers(1, longest)))

    queries = [text(preprocessor.schema.query_tokens) for _ in range(PARITY_TEXTS)]
    documents = [Document(str(number), {field.name: (text(field.tokens),)}) for number in range(PARITY_TEXTS)]
    return queries, documents
