"""Default texts to check a tower with: words of the term statistics, of many lengths."""

from collections.abc import Sequence

import numpy as np

from glow.artifact import DOCUMENT_TOWER, QUERY_TOWER
from glow.records import Document
from glow.text import Preprocessor, WeightedTokens

__all__ = ["PARITY_TEXTS", "parity_texts"]

PARITY_TEXTS = 256


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
