"""Files of hard negatives: JSON lines after a header that describes their source.

The first line is the header (`Header`); each further line is a query with its negatives:
`{"query_id": "q1", "query": "text", "negatives": [{"id": "d7", "rank": 12, "score": 0.61, "source": "dense"}]}`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from glow.errors import InputError
from glow.options import StrictModel
from glow.records import Document

FORMAT_VERSION: Literal[1] = 1


@dataclass(frozen=True, slots=True)
class Negative:
    """A document that is close to a query and not judged relevant."""

    id: str
    rank: int  # in its source's ranking, from 1; relevant documents count
    score: float  # of its source (cosine, or BM25)
    source: str  # `dense` or `lexical`


@dataclass(frozen=True, slots=True)
class QueryNegatives:
    """One query's line."""

    query_id: str
    query: str
    negatives: tuple[Negative, ...]


class SourceRecord(StrictModel):
    """Name and hash of the model or checkpoint that found the negatives."""

    name: str
    sha256: str


class Header(StrictModel):
    """First line of the file."""

    glow_negatives: Literal[1] = FORMAT_VERSION
    data: str  # name of the dataset's directory
    split: str  # name of its relevance judgments
    documents_hash: str  # of the dataset's documents (`documents_hash`); a reader refuses any others
    queries: int  # number of lines that follow, so that a truncated file is noticed
    model: SourceRecord | None  # the encoder; None if only BM25 searched
    options: dict[str, Any]  # of the mining


def documents_hash(documents: Sequence[Document]) -> str:
    """SHA-256 over ids and contents in order; it does not matter which keys are text fields and which metadata."""
    digest = hashlib.sha256()
    for document in documents:
        content = {**document.metadata, **{name: list(values) for name, values in document.fields.items()}}
        listed = ((key, [value] if isinstance(value, str) else value) for key, value in content.items())
        filled = {key: value for key, value in listed if value not in (None, [], [""])}
        digest.update(json.dumps([document.id, filled], sort_keys=True).encode())
    return digest.hexdigest()


def write_negatives(path: Path, header: Header, lines: Sequence[QueryNegatives]) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(header.model_dump_json() + "\n")
            file.writelines(json.dumps(asdict(line), ensure_ascii=False) + "\n" for line in lines)
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
