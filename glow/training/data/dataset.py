"""Reads the documents, queries and relevance judgments of data directories for training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import InputError
from glow.records import Document
from glow.schema import FieldSchema
from glow.text import TermCounter, TermTable, WordPieces, field_words
from glow.training.data.corpus_file import CorpusFile

__all__ = ["Collection", "count_terms", "read_collection"]

MOST_BYTES_IN_MEMORY = 1 << 30
"""A larger `corpus.jsonl` stays on disk; in memory its documents would take more than its size."""


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """A data directory's documents and the queries of one split, with their relevance judgments.

    Attributes:
        name: the directory's name.
        documents, queries: texts; their positions are the numbers used elsewhere. Documents may be read on demand.
        query_ids: ids of the queries.
        relevant: query number -> numbers of its relevant documents (grade >= 1), at least one.
        negatives: query number -> numbers of its hard negatives, if any.
    """

    name: str
    documents: Sequence[Document]
    queries: Sequence[str]
    query_ids: Sequence[str]
    relevant: Sequence[frozenset[int]]
    negatives: Sequence[tuple[int, ...]] | None = None

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Every judged relevant pair, int64 [pairs, 2], in file order."""
        rows = [
            (query, document)
            for query, documents in enumerate(self.relevant)
            for document in sorted(documents)
        ]
        return np.array(rows, np.int64).reshape(-1, 2)


def read_collection(
    folder: Path, split: str, schema: FieldSchema, most_bytes: int = MOST_BYTES_IN_MEMORY
) -> Collection:
    """Reads `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv` of a directory.

    Args:
        folder: holds the files.
        split: split of the judgments.
        schema: names the text fields.
        most_bytes: a larger `corpus.jsonl` stays on disk.

    Raises:
        InputError: if a file is missing or invalid, or the split judges none of the documents and queries.
    """
    documents = _documents(folder, schema, most_bytes)
    ids = documents.ids if isinstance(documents, CorpusFile) else [document.id for document in documents]
    numbers = {identifier: number for number, identifier in enumerate(ids)}
    texts = {query.id: query.text for query in read_queries(folder / "queries.jsonl")}
    judged: dict[str, set[int]] = {}
    for qrel in read_qrels(folder / "qrels" / f"{split}.tsv"):
        if qrel.grade >= 1 and qrel.document_id in numbers and qrel.query_id in texts:
            judged.setdefault(qrel.query_id, set()).add(numbers[qrel.document_id])
    if not judged:
        raise InputError(f"split {split!r} of {folder} judges none of its queries and documents")
    queries = [texts[identifier] for identifier in judged]
    return Collection(
        folder.resolve().name,
        documents,
        queries,
        list(judged),
        [frozenset(found) for found in judged.values()],
    )


def _documents(folder: Path, schema: FieldSchema, most_bytes: int) -> Sequence[Document]:
    """The documents of a directory, in memory or on disk."""
    path = folder / "corpus.jsonl"
    if path.is_file() and path.stat().st_size > most_bytes:
        return CorpusFile(path, schema.names)
    return list(read_documents(path, schema.names))


def count_terms(collections: Sequence[Collection], schema: FieldSchema, pieces: WordPieces) -> TermTable:
    """Term statistics of the training data: all documents, and the queries' average length.

    A document in several directories (a dataset and the pairs synthesized from it) counts once.
    """
    counter = TermCounter()
    seen: set[int] = set()
    for collection in collections:
        for document in collection.documents:
            key = hash((document.id, tuple(document.fields.items())))
            if key not in seen:
                seen.add(key)
                counter.add(field_words(document, schema, pieces))
        for query in collection.queries:
            counter.add_query(pieces.words(query))
    return counter.table()
