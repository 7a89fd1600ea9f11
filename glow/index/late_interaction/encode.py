"""Encodes token embeddings of the document tower as the binary codes that an index stores."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from glow.index.encoding import Records, Texts
from glow.index.late_interaction.codes import CodedTokens, code_texts
from glow.index.late_interaction.pooling import stored_tokens
from glow.index.numpy_threads import set_numpy_threads
from glow.runtime import TOKENS, Device, Model
from glow.text import TermTable

__all__ = ["LateEncoder", "LateJob", "coded_of"]


@dataclass(frozen=True, slots=True)
class LateJob:
    """How token embeddings are stored.

    Attributes:
        size: P, dimensions of a token embedding.
        budget: most tokens of a document or passage.
    """

    size: int
    budget: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of a token: its position in the text, and its signs."""
        return np.dtype([("place", "<u2"), ("code", "u1", (self.size // 8,))])

    def open(self, model: Model, terms: TermTable, device: Device) -> "LateEncoder":
        """As `EncodeJob`; loads nothing."""
        set_numpy_threads(1)
        return LateEncoder(self)


class LateEncoder:
    """Converts the tower's token embeddings to codes; safe to use from many threads.

    Args:
        job: parameters of the store.
    """

    reads: tuple[str, ...] = (TOKENS,)

    def __init__(self, job: LateJob) -> None:
        self._job = job

    def encode(self, batch: Texts) -> Records:
        """Codes of documents or passages, in their order, at least one for each.

        Raises:
            ValueError: if an embedding is not finite, because the model or a document is broken.
        """
        tokens = list(batch.outputs[TOKENS])
        for document, sequence, read in zip(batch.texts, batch.sequences, tokens, strict=True):
            if not np.isfinite(read[stored_tokens(sequence)]).all():
                raise ValueError(f"the token vectors of document {document.id!r} are not finite")
        coded = code_texts(batch.sequences, tokens, self._job.budget)
        records = np.empty(len(coded.codes), self._job.dtype)
        records["place"], records["code"] = coded.places, coded.codes
        return Records(records, coded.lengths)


def coded_of(records: Records) -> CodedTokens:
    """Stored rows from records of `LateEncoder`."""
    tokens = records.records
    return CodedTokens(records.counts, tokens["code"], tokens["place"])
