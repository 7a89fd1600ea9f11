"""Vectors of the live version for documents whose fields did not change, so that they are not encoded again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glow.index.milvus import STORE_FILE
from glow.index.passages import TextsOfDocuments
from glow.index.vectors import VECTORS
from glow.records import Document
from glow_index_builder.encoding.text_encoder import EncodedTexts, TextEncoder
from glow_index_builder.open_version import OpenVersion


@dataclass(frozen=True, slots=True, eq=False)
class KnownText:
    """A document or passage whose vector is known."""

    vector: NDArray[np.float32]  # float32 [D], L2-normalized
    is_first: bool  # whether it is the first text of its document


Text = Document | KnownText


class KnownVectors:
    """Vectors of a version's documents; safe to use from many threads.

    The caller checks that the same fields give the same encoder input: model, passages and weights.
    """

    def __init__(self, live: OpenVersion) -> None:
        self._live = live
        self._documents = live.documents

    def of(self, document: Document) -> NDArray[np.float32] | None:
        """The vectors of its texts, float32 [texts, D]; None if the version lacks the document or holds other fields."""
        row = self._documents.find(document.id)
        if row is None:
            return None
        (stored,) = self._documents.rows([row])
        if dict(stored.fields) != {name: texts for name, texts in document.fields.items() if texts}:
            return None
        delta, place = self._live.delta, row - self._live.base.rows.documents
        segment = self._live.base if place < 0 or delta is None else delta.segment
        if not segment.below:
            place = row
            if segment.has(STORE_FILE):  # on a server, which an upsert does not need otherwise
                return None
        first = segment.rows.first
        rows = [place] if first is None else range(int(first[place]), int(first[place + 1]))
        return segment[VECTORS].vectors(np.array(rows, np.int64))


def texts_with_known(
    documents: Iterable[tuple[int, Document]],  # with their rows
    texts_of: TextsOfDocuments,
    known: KnownVectors | None,
) -> Iterator[Text]:
    """Yields the texts of documents in order; those with known vectors as `KnownText`."""
    for row, document in documents:
        vectors = None if known is None else known.of(document)
        if vectors is None:
            yield from texts_of.of(document, row)
        else:
            yield from (KnownText(vector, place == 0) for place, vector in enumerate(vectors))


def encode_unknown(encoder: TextEncoder, texts: Sequence[Text]) -> EncodedTexts:
    """As `TextEncoder.encode`, but the known vectors are taken; only without encoders of records."""
    new = [text for text in texts if isinstance(text, Document)]
    encoded = encoder.encode(new) if new else EncodedTexts({}, np.empty((0, encoder.dimensions), np.float32))
    if len(new) == len(texts):
        return encoded
    vectors, rest = [], iter(encoded.vectors)
    for text in texts:
        vectors.append(text.vector if isinstance(text, KnownText) else next(rest))
    reused = sum(isinstance(text, KnownText) and text.is_first for text in texts)
    return encoded._replace(vectors=np.stack(vectors), reused=reused)
