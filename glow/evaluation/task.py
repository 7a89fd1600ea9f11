"""The input of an evaluation: a corpus, and the judged queries of one split (BEIR's layout, `glow.collection`)."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import InputError, RecordError
from glow.records import Document, Qrel, Query

__all__ = ["Corpus", "Task", "find_tasks"]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents of a data directory; each iteration reads the file again.

    Attributes:
        folder: holds `corpus.jsonl`.
        fields: keys that are text fields; the others are metadata.
    """

    folder: Path
    fields: tuple[str, ...]

    def __iter__(self) -> Iterator[Document]:
        """Yields the documents that have text, in order.

        Raises:
            InputError: if the file cannot be read.
            RecordError: if a line is not a document, or an id is repeated.
        """
        seen: set[str] = set()
        for document in read_documents(self.folder / "corpus.jsonl", self.fields):
            if document.id in seen:
                raise RecordError(f"{self.folder.name}/corpus.jsonl holds the id {document.id!r} twice")
            seen.add(document.id)
            yield document

    @property
    def hash(self) -> str:
        """SHA-256 of the corpus file in hexadecimal digits."""
        with (self.folder / "corpus.jsonl").open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Task:
    """The judged queries of one split.

    Attributes:
        data: name of the data directory.
        split: name of the judgment file.
        queries: every judged query, in the order of the judgments.
        qrels: all judgments.
    """

    data: str
    split: str
    queries: tuple[Query, ...]
    qrels: tuple[Qrel, ...]

    def check(self, document_ids: Collection[str]) -> None:
        """Refuses judgments of another corpus.

        Raises:
            InputError: if none of the judged documents is among `document_ids`.
        """
        known = set(document_ids)
        if not any(qrel.document_id in known for qrel in self.qrels):
            raise InputError(
                f"none of the documents that {self.data}/qrels/{self.split}.tsv judges is in the corpus "
                f"({len(known)} documents, the first judged id is {self.qrels[0].document_id!r})"
            )


def find_tasks(folder: Path, splits: Sequence[str]) -> list[Task]:
    """Reads the splits that a data directory has.

    Raises:
        InputError: if it has none of them, a file cannot be read, or a judged query has no text.
        RecordError: if a line is invalid.
    """
    present = [split for split in dict.fromkeys(splits) if (folder / "qrels" / f"{split}.tsv").is_file()]
    if not present:
        there = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
        raise InputError(
            f"{folder} has no qrels/SPLIT.tsv for {' or '.join(splits)}; found {', '.join(there) or 'no split'}"
        )
    texts = {query.id: query for query in read_queries(folder / "queries.jsonl")}
    return [_task(folder, split, texts) for split in present]


def _task(folder: Path, split: str, texts: dict[str, Query]) -> Task:
    qrels = tuple(read_qrels(folder / "qrels" / f"{split}.tsv"))
    if not qrels:
        raise InputError(f"{folder.name}/qrels/{split}.tsv has no judgments: expected rows below its header")
    judged = dict.fromkeys(qrel.query_id for qrel in qrels)
    missing = [query_id for query_id in judged if query_id not in texts]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(judged)} queries of {folder.name}/qrels/{split}.tsv are not in queries.jsonl, "
            f"the first is {missing[0]!r}"
        )
    return Task(folder.resolve().name, split, tuple(texts[query_id] for query_id in judged), qrels)
