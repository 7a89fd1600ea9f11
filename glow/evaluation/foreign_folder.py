"""Writes a dataset of ir_datasets as a data directory; keeps ids in memory, and streams texts and rankings.

In addition to `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`, a dataset with rankings (`scoreddocs`) gives
`candidates/SPLIT.run`, a TREC run, and `negatives/SPLIT.jsonl` (`glow.negatives`).
"""

import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TextIO

from glow.collection import has_text, parse_document
from glow.commands import progress
from glow.errors import InputError, RecordError
from glow.negatives import Header, Negative, QueryNegatives, documents_hash, write_negatives
from glow.records import Document

__all__ = ["HARDEST", "FolderWriter"]

HARDEST = 10
"""Hard negatives of a query. BISON B.2: "selected the hardest 10 negative pairs from top100"."""
FIELDS = ("title", "url", "text")
REJECTS = "rejects.jsonl"
SHOWN = 1000
_BODIES = ("text", "body", "abstract", "contents", "main_content", "paragraph", "passage", "code")
_TITLES = ("title", "headline", "subject")
_QUERIES = ("text", "query", "title", "question")


class FolderWriter:
    """Writes a data directory: documents first, then each split.

    Unusable records go to `rejects.jsonl` with their place and the fault.

    Args:
        folder: an empty directory.
        name: the directory's final name.

    Attributes:
        counts: numbers written, by kind.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.counts: Counter[str] = Counter()
        self._folder, self._name = folder, name
        self._documents: set[str] = set()
        self._documents_hash = ""
        self._queries: dict[str, str] = {}
        self._rejects = _open(folder / REJECTS)

    def write_documents(self, dataset: Any) -> None:
        """Writes `corpus.jsonl` with the fields `title`, `url` and `text`; other text is metadata.

        Raises:
            InputError: if the dataset cannot be read, or has no usable document.
        """
        documents: Any = self._written(dataset)  # hashed while they are written, because texts are not kept
        self._documents_hash = documents_hash(documents)
        if not self._documents:
            raise InputError(f"none of the dataset's {self.counts['rejects']} documents can be used")

    def write_split(self, split: str, dataset: Any, *, with_candidates: bool) -> None:
        """Writes the queries and judgments of a split and, if requested, its rankings.

        Raises:
            InputError: if the dataset cannot be read.
        """
        self._write_queries(dataset)
        relevant = self._write_judgments(split, dataset)
        if with_candidates and dataset.has_scoreddocs():
            try:
                negatives = self._write_candidates(split, dataset, relevant)
            except RecordError as error:
                (self._folder / "candidates" / f"{split}.run").unlink()
                del self.counts[f"candidates {split}"]
                self._reject("scoreddocs", split, f"{error}; no candidates are written")
            else:
                self._write_negatives(split, negatives)

    def close(self) -> None:
        """Closes the file of rejects, and removes it if it is empty."""
        self._rejects.close()
        if not self.counts["rejects"]:
            (self._folder / REJECTS).unlink()

    def _written(self, dataset: Any) -> Iterator[Document]:
        with _open(self._folder / "corpus.jsonl") as file:
            for found in _records("documents", dataset.docs_iter):
                line = json.dumps(_document(found._asdict()), ensure_ascii=False)
                try:
                    document = _checked(line, FIELDS)
                    if document.id in self._documents:
                        raise RecordError("an earlier document has this id")
                except RecordError as error:
                    self._reject("docs", found.doc_id, str(error))
                    continue
                file.write(line + "\n")
                self._documents.add(document.id)
                self.counts["documents"] += 1
                yield document

    def _write_queries(self, dataset: Any) -> None:
        with _open(self._folder / "queries.jsonl", "a") as file:
            for found in _records("queries", dataset.queries_iter):
                values = found._asdict()
                text = next((values[name] for name in _QUERIES if isinstance(values.get(name), str)), "")
                line = json.dumps({"_id": found.query_id, "text": text}, ensure_ascii=False)
                try:
                    query = _checked(line, ("text",))
                    known = self._queries.get(query.id)
                    if known not in (None, query.fields["text"][0]):
                        raise RecordError("an earlier query has this id")
                except RecordError as error:
                    self._reject("queries", found.query_id, str(error))
                    continue
                if known is None:  # splits may share queries
                    file.write(line + "\n")
                    self._queries[query.id] = query.fields["text"][0]
                    self.counts["queries"] += 1

    def _write_judgments(self, split: str, dataset: Any) -> dict[str, set[str]]:
        """Writes every judgment, and returns those with grade 1 or higher."""
        relevant: dict[str, set[str]] = {}
        (self._folder / "qrels").mkdir(exist_ok=True)
        with _open(self._folder / "qrels" / f"{split}.tsv") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            for row in _records("judgments", dataset.qrels_iter):
                file.write(f"{row.query_id}\t{row.doc_id}\t{int(row.relevance)}\n")
                self.counts[f"judgments {split}"] += 1
                if int(row.relevance) >= 1 and row.doc_id in self._documents:
                    relevant.setdefault(row.query_id, set()).add(row.doc_id)
        return relevant

    def _write_candidates(
        self, split: str, dataset: Any, relevant: dict[str, set[str]]
    ) -> list[QueryNegatives]:
        """Writes the rankings as a run, and returns the hard negatives of queries with a relevant document.

        Raises:
            RecordError: if the rows of a query are not consecutive.
        """
        lines, seen = [], set()
        (self._folder / "candidates").mkdir(exist_ok=True)
        with _open(self._folder / "candidates" / f"{split}.run") as file:
            rows = _records("candidates", dataset.scoreddocs_iter)
            for query, group in groupby(rows, lambda row: str(row.query_id)):
                if query in seen:
                    raise RecordError(f"the rows of query {query} are not consecutive")
                seen.add(query)
                ranking = self._ranking(query, group)
                for rank, (document, score) in enumerate(ranking, start=1):
                    file.write(f"{query} Q0 {document} {rank} {score!r} ir_datasets\n")
                self.counts[f"candidates {split}"] += len(ranking)
                if query in relevant and query in self._queries:
                    hard = [
                        Negative(document, rank, score, "candidates")
                        for rank, (document, score) in enumerate(ranking, start=1)
                        if document not in relevant[query]
                    ]
                    lines.append(QueryNegatives(query, self._queries[query], tuple(hard[:HARDEST])))
        return lines

    def _ranking(self, query: str, rows: Iterator[Any]) -> list[tuple[str, float]]:
        """Known documents with scores, best first; equal scores stay in the dataset's order."""
        scores: dict[str, float] = {}
        for row in rows:
            if query not in self._queries:
                self._reject("scoreddocs", f"{query} {row.doc_id}", "no query has this id")
            elif row.doc_id not in self._documents:
                self._reject("scoreddocs", f"{query} {row.doc_id}", "no document has this id")
            elif len(f"{query} {row.doc_id}".split()) != 2:
                self._reject("scoreddocs", f"{query} {row.doc_id}", "a TREC run allows no white space in ids")
            else:
                scores.setdefault(row.doc_id, float(row.score))
        return sorted(scores.items(), key=lambda item: -item[1])

    def _write_negatives(self, split: str, lines: Sequence[QueryNegatives]) -> None:
        header = Header(
            data=self._name,
            split=split,
            documents_hash=self._documents_hash,
            queries=len(lines),
            model=None,
            options={"source": "candidates", "count": HARDEST, "choose": "hardest"},
        )
        write_negatives(self._folder / "negatives" / f"{split}.jsonl", header, lines)
        self.counts[f"negatives {split}"] = sum(len(line.negatives) for line in lines)

    def _reject(self, part: str, place: str, reason: str) -> None:
        self._rejects.write(json.dumps({"file": part, "place": place, "reason": reason}) + "\n")
        self.counts["rejects"] += 1


def _open(path: Path, mode: Literal["w", "a"] = "w") -> TextIO:
    # UTF-8 cannot hold a lone surrogate, so JSON escapes it.
    return path.open(mode, encoding="utf-8", errors="backslashreplace")


def _checked(line: str, fields: Sequence[str]) -> Document:
    """Parses a line as a reader of the directory does.

    Raises:
        RecordError: if the reader would refuse it, or skip it because it has no text.
    """
    found = parse_document(line.encode(errors="backslashreplace"), fields)
    if not has_text(found):
        raise RecordError("no text")
    return found


def _records(name: str, read: Any) -> Iterator[Any]:
    """The records of one part of a dataset; shows the progress.

    Raises:
        InputError: if ir_datasets cannot fetch or read them.
    """
    done = 0
    with progress(sys.stderr, name, unit=name) as advance:
        try:
            for done, record in enumerate(read(), start=1):
                yield record
                if done % SHOWN == 0:
                    advance(SHOWN)
        except (OSError, EOFError, ValueError, RuntimeError, zlib.error) as error:
            raise InputError(f"ir_datasets cannot read the {name}: {error}") from error
        advance(done % SHOWN)


def _document(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"_id": values.pop("doc_id")}
    for wanted, names in (("title", _TITLES), ("url", ("url",)), ("text", _BODIES)):
        name = next((name for name in names if isinstance(values.get(name), str)), None)
        if name is not None:
            found[wanted] = values.pop(name)
    if "text" not in found:
        found["text"] = " ".join(value for value in values.values() if isinstance(value, str))
    return {**{key: value for key, value in values.items() if isinstance(value, str | int | float)}, **found}
