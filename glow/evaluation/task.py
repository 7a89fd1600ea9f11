"""The input of an evaluation: a corpus, and the judged queries of one split (BEIR's layout, `glow.collection`)."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from glow.collection import read_documents, read_qrels, read_queries
from glow.errors import InputError, RecordError
from glow.records import Document, Qrel, Query


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents of a data directory; each iteration reads the file again."""

    folder: Path  # holds `corpus.jsonl`
    fields: tuple[str, ...]  # keys that are text fields; the others are metadata

    def __iter__(self) -> Iterator[Document]:
        """Yields the documents that have text, in order; a repeated id is refused."""
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
    """The judged queries of one split."""

    data: str  # name of the data directory
    split: str  # name of the judgment file
    queries: tuple[Query, ...]  # every judged query, in the order of the judgments
    qrels: tuple[Qrel, ...]

    def check(self, document_ids: Collection[str]) -> None:
        """Refuses judgments of which none is of these documents: they belong to another corpus."""
        known = set(document_ids)
        if not any(qrel.document_id in known for qrel in self.qrels):
            raise InputError(
                f"none of the documents that {self.data}/qrels/{self.split}.tsv judges is in the corpus "
                f"({len(known)} documents, the first judged id is {self.qrels[0].document_id!r})"
            )


def find_tasks(folder: Path, splits: Sequence[str]) -> list[Task]:
    """Reads those of the splits that a data directory has; it must have one, and every judged query a text."""
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


def read_judgements(path: Path) -> list[Qrel]:
    """Reads a file of relevance judgments (qrels); its first line decides the format.

    BEIR: a header, then `query-id`, `corpus-id` and grade, separated by tabs. TREC: `query-id 0 document-id grade`,
    separated by white space and without a header, as in MS MARCO and the TREC tracks.
    """
    qrels = _trec(path) if _is_trec(path) else list(read_qrels(path))
    if not qrels:
        raise InputError(f"{path} has no judgments: expected rows below its header")
    return qrels


def _is_trec(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first = next((line.split() for line in file if line.strip()), [])
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return len(first) == 4 and _grade(first[3].decode("utf-8", "replace")) is not None


def _trec(path: Path) -> list[Qrel]:
    qrels = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path.name}: not UTF-8") from error
    for number, line in enumerate(lines, start=1):
        columns = line.split()
        grade = _grade(columns[3]) if len(columns) == 4 else None
        if grade is not None:
            qrels.append(Qrel(columns[0], columns[2], grade))
        elif columns:
            raise RecordError(
                f"{path.name} line {number}: expected `query-id 0 document-id grade`, found {line.strip()!r:.120}"
            )
    return qrels


def _grade(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
