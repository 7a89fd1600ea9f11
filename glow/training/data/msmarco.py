"""MS MARCO's document ranking files as released, read in place as a training collection.

Beside `msmarco-docs.tsv` (see `glow.training.data.msmarco_documents`) a folder holds for each split
`msmarco-docSPLIT-queries.tsv` (qid, tab, text), `msmarco-docSPLIT-qrels.tsv` (`qid 0 docid relevance`) and
`msmarco-docSPLIT-top100` (`qid Q0 docid rank score tag`), each packed with gzip (`.gz`) or not. Source:
https://microsoft.github.io/msmarco/TREC-Deep-Learning-2019; the pairs: GLOW section 4.1.1, BISON appendix B.2.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from glow.errors import InputError, RecordError
from glow.schema import FieldSchema
from glow.training.data.dataset import Collection
from glow.training.data.msmarco_documents import DOCUMENTS, MsMarcoDocuments, Rejects

__all__ = ["MsMarcoDocuments", "is_msmarco", "labelled_pairs", "read_msmarco"]

HARDEST = 10
"""BISON B.2: "selected the hardest 10 negative pairs from top100"."""
OVERSAMPLING = 10
"""BISON B.2: "over-sampled the positive pairs by 10 times"."""
_WHOLE_NUMBER = re.compile(rb"-?[0-9]{1,9}")


def is_msmarco(folder: Path) -> bool:
    """Whether a folder holds MS MARCO's documents, packed or not."""
    return any((folder / name).is_file() for name in (DOCUMENTS, f"{DOCUMENTS}.gz"))


def read_msmarco(folder: Path, split: str, schema: FieldSchema, cache: Path | None = None) -> Collection:
    """Reads one split; its documents stay on disk.

    Lines that cannot be used (damaged, or naming a query or document that is not there) go to
    `msmarco-docs.rejects.jsonl` and `msmarco-docSPLIT.rejects.jsonl` in the cache folder; their number is logged.

    Args:
        folder: holds the released files.
        split: `train` or `dev`.
        schema: its fields `url`, `title` and `text` (or `body`) are filled, others stay empty.
        cache: folder of the documents' index and of the rejects; default: `folder`.

    Returns:
        The collection: the judged queries in the judgements' order, and as `negatives` each one's 10 best ranked
        documents of its top 100 that are not judged relevant (None where the split has no top 100).

    Raises:
        InputError: if a file is missing, or packed though it must not be, or not what it should be.
    """
    place = cache or folder
    documents = MsMarcoDocuments.open(folder, schema, place)
    stem = f"msmarco-doc{split}"
    with Rejects(place / f"{stem}.rejects.jsonl") as rejects:
        reader = _SplitReader(folder, stem, documents, rejects)
        texts = reader.queries()
        judged = reader.judgements(texts)
        if not judged:
            raise InputError(f"split {split!r} of {folder} judges no query and document that are there")
        negatives = reader.negatives(texts, judged)
    queries = [texts[query] for query in judged]
    relevant = [frozenset(found) for found in judged.values()]
    return Collection(
        name=folder.resolve().name,
        documents=documents,
        queries=queries,
        query_ids=[query.decode(errors="replace") for query in judged],
        relevant=relevant,
        negatives=negatives,
    )


def labelled_pairs(
    collection: Collection, seed: int, epoch: int = 0, oversampling: int = OVERSAMPLING
) -> NDArray[np.int32]:
    """The papers' training pairs: each relevant pair several times, each hard negative once (BISON B.2).

    Args:
        collection: with negatives or without.
        seed, epoch: of the order, which depends on nothing else.
        oversampling: how often a relevant pair is given, at least 1.

    Returns:
        int32 [pairs, 3]: query number, document number, label (1 relevant, 0 not), shuffled.
    """
    hard = ((query, number) for query, numbers in enumerate(collection.negatives or ()) for number in numbers)
    negatives = np.fromiter(hard, np.dtype((np.int32, 2)))
    positives = np.repeat(collection.pairs.astype(np.int32), oversampling, axis=0)
    labels = np.repeat(np.array([1, 0], np.int32), [len(positives), len(negatives)])
    rows = np.column_stack([np.concatenate([positives, negatives]), labels])
    return rows[np.random.default_rng([seed, epoch]).permutation(len(rows))]


class HardNegatives(Sequence[tuple[int, ...]]):
    """Up to 10 document numbers a query, the hardest first, in an int32 array [queries, 10] filled up with -1."""

    def __init__(self, numbers: NDArray[np.int32]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        """Queries."""
        return len(self._numbers)

    @overload
    def __getitem__(self, query: int) -> tuple[int, ...]: ...
    @overload
    def __getitem__(self, query: slice) -> list[tuple[int, ...]]: ...
    def __getitem__(self, query: int | slice) -> tuple[int, ...] | list[tuple[int, ...]]:
        """The negatives of one query, or of some."""
        if isinstance(query, slice):
            return [self[position] for position in range(*query.indices(len(self)))]
        return tuple(number for number in self._numbers[query].tolist() if number >= 0)


class _Row(NamedTuple):
    """A line of a split's file with its number and its columns."""

    number: int
    line: bytes
    columns: list[bytes]


class _SplitReader:
    """Reads the three files of a split; every line that cannot be used becomes a reject."""

    def __init__(self, folder: Path, stem: str, documents: MsMarcoDocuments, rejects: Rejects) -> None:
        self._folder = folder
        self._stem = stem
        self._documents = documents
        self._rejects = rejects

    def queries(self) -> dict[bytes, str]:
        """Query id -> text."""
        path = _find(self._folder, f"{self._stem}-queries.tsv")
        texts: dict[bytes, str] = {}
        for row in self._rows(path, _query_columns):
            query, text = row.columns
            if query in texts:
                self._rejects.add(
                    path.name, row.number, f"a line before has the id {_show(query)} too", row.line
                )
            else:
                texts[query] = text.decode()
        return texts

    def judgements(self, texts: Mapping[bytes, str]) -> dict[bytes, set[int]]:
        """Query id -> numbers of its relevant documents, in the file's order."""
        path = _find(self._folder, f"{self._stem}-qrels.tsv")
        rows = list(self._rows(path, _qrel_columns))
        judged: dict[bytes, set[int]] = {}
        numbers = self._documents.numbers([row.columns[2] for row in rows])
        for row, number in zip(rows, numbers.tolist(), strict=True):
            if self._is_known(path, row, texts, number) and int(row.columns[3]) >= 1:
                judged.setdefault(row.columns[0], set()).add(number)
        return judged

    def negatives(self, texts: Mapping[bytes, str], judged: Mapping[bytes, set[int]]) -> HardNegatives | None:
        """The hardest documents of every judged query's top 100; the file is streamed, one query in memory."""
        stem = f"{self._stem}-top100"
        if not any((self._folder / name).is_file() for name in (stem, f"{stem}.gz")):
            return None
        path = _find(self._folder, stem)
        positions = {query: position for position, query in enumerate(judged)}
        hardest = np.full((len(judged), HARDEST), -1, np.int32)
        ranks = np.full((len(judged), HARDEST), np.iinfo(np.int32).max, np.int32)
        for query, group in groupby(self._rows(path, _run_columns), key=lambda row: row.columns[0]):
            rows = list(group)
            numbers = self._documents.numbers([row.columns[2] for row in rows]).tolist()
            found = {
                number: int(row.columns[3])
                for row, number in zip(rows, numbers, strict=True)
                if self._is_known(path, row, texts, number) and number not in judged.get(query, ())
            }
            if query in positions:
                # The release has a query's rows together; should they be scattered, the best of all still win.
                position = positions[query]
                before = zip(hardest[position].tolist(), ranks[position].tolist(), strict=True)
                found |= {number: rank for number, rank in before if number >= 0}
                best = sorted(found.items(), key=lambda item: (item[1], item[0]))[:HARDEST]
                hardest[position, : len(best)] = [number for number, _ in best]
                ranks[position, : len(best)] = [rank for _, rank in best]
        return HardNegatives(hardest)

    def _is_known(self, path: Path, row: _Row, texts: Mapping[bytes, str], number: int) -> bool:
        if row.columns[0] not in texts:
            fault = f"no query has the id {_show(row.columns[0])}"
        elif number < 0:
            fault = f"no document has the id {_show(row.columns[2])}"
        else:
            return True
        self._rejects.add(path.name, row.number, fault, row.line)
        return False

    def _rows(self, path: Path, parse: Callable[[bytes], list[bytes]]) -> Iterator[_Row]:
        for number, line in _lines(path):
            try:
                yield _Row(number, line, parse(line))
            except RecordError as error:
                self._rejects.add(path.name, number, str(error), line)


def _query_columns(line: bytes) -> list[bytes]:
    columns = line.rstrip(b"\r\n").split(b"\t")
    if len(columns) != 2 or not all(column.strip() for column in columns):
        raise RecordError(f"expected 2 columns with text (qid, query), found {len(columns)}")
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"not UTF-8: byte {line[error.start]:#04x} at position {error.start}") from error
    return columns


def _qrel_columns(line: bytes) -> list[bytes]:
    columns = line.split()
    if len(columns) != 4 or not _WHOLE_NUMBER.fullmatch(columns[3]):
        raise RecordError(f"expected qid, 0, docid and a whole number, found {len(columns)} columns")
    return columns


def _run_columns(line: bytes) -> list[bytes]:
    columns = line.split()
    if len(columns) != 6 or not _WHOLE_NUMBER.fullmatch(columns[3]):
        raise RecordError(
            f"expected qid, Q0, docid, rank as a whole number, score and tag, found {len(columns)} columns"
        )
    return columns


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise InputError(f"{folder} has neither {name} nor {name}.gz; expected MS MARCO's files as released")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from enumerate(file, start=1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged ({error}); fetch it again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _show(identifier: bytes) -> str:
    return identifier[:80].decode(errors="replace")
