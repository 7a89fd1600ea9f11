"""Training pairs from documents alone: what a document says of itself serves as a query for it.

Queries are a document's clicked queries and anchors, its first sentence, and some of its other sentences (an inverse
cloze task). The result is a data folder like any other, to be read, inspected and trained on.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from glow.collection import read_documents
from glow.records import Document
from glow.schema import FieldSchema

__all__ = ["synthesise"]

MIN_WORDS, MAX_WORDS = 4, 40
MAX_QUERIES = 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=\s*>>>)")
_SPACE = re.compile(r"\s+")


def synthesise(
    corpus: Path, out: Path, schema: FieldSchema, seed: int = 0, max_queries: int = MAX_QUERIES
) -> int:
    """Writes a data folder of synthetic queries, all in the split `train`.

    Args:
        corpus: JSON lines of documents.
        out: folder to write: `corpus.jsonl`, `queries.jsonl`, `qrels/train.tsv`.
        schema: names the text fields.
        seed: of the choice of sentences.
        max_queries: most queries a document.

    Returns:
        Number of pairs.

    Raises:
        InputError: the corpus cannot be read.
    """
    random = np.random.default_rng(seed)
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    (out / "corpus.jsonl").write_bytes(corpus.read_bytes())
    pairs = 0
    with (
        (out / "queries.jsonl").open("w", encoding="utf-8") as queries,
        (out / "qrels" / "train.tsv").open("w", encoding="utf-8") as qrels,
    ):
        qrels.write("query-id\tcorpus-id\tscore\n")
        for document in read_documents(corpus, schema.names):
            for text in _choose(list(_candidates(document)), max_queries, random):
                queries.write(json.dumps({"_id": f"s{pairs}", "text": text}, ensure_ascii=False) + "\n")
                qrels.write(f"s{pairs}\t{document.id}\t1\n")
                pairs += 1
    return pairs


def _candidates(document: Document) -> Iterator[str]:
    """What others say of a document first, then its sentences in order, each once."""
    texts = [*document.fields.get("clicked_queries", ()), *document.fields.get("anchor", ())]
    for body in document.fields.get("text", ()):
        texts.extend(_SENTENCE_END.split(body))
    seen = set()
    for text in texts:
        plain = _SPACE.sub(" ", text).strip()
        if MIN_WORDS <= len(plain.split()) <= MAX_WORDS and plain not in seen:
            seen.add(plain)
            yield plain


def _choose(texts: list[str], most: int, random: np.random.Generator) -> list[str]:
    """The first text, which mostly says what the document is, and a random choice of the others."""
    if len(texts) <= most:
        return texts
    others = sorted(random.choice(len(texts) - 1, most - 1, replace=False) + 1)
    return [texts[0], *(texts[int(number)] for number in others)]
