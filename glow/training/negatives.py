"""Hard negatives: documents that a retriever ranks high for a query and that are not judged relevant.

A document that scores almost as high as the best relevant one is often relevant but unjudged. The margin, a fraction
of the positive's score, excludes it (Moreira et al., NV-Retriever, 2024). `glow.negatives` describes their files.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from glow.collection import parse_object
from glow.errors import ConfigError, FormatError, InputError, MismatchError, RecordError
from glow.evaluation import LexicalRetriever
from glow.negatives import FORMAT_VERSION, Header, Negative, QueryNegatives, SourceRecord, documents_hash
from glow.options import describe
from glow.records import Document, Query
from glow.schema import FieldSchema
from glow.training.data import Collection
from glow.training.encode import EncodedCorpus

MiningRetriever = Literal["dense", "lexical"]
BLOCK_QUERIES = 256
Ranking = Sequence[tuple[int, float]]
"""Document numbers with scores, best first."""


@dataclass(frozen=True, slots=True)
class MiningOptions:
    """Options of mining."""

    retriever: MiningRetriever = "dense"  # vectors, or BM25
    # first, last: first and last rank to mine, counted from 1 over all documents
    first: int = 10
    last: int = 100
    count: int = 8  # most negatives per query, >= 1
    # fraction of the best relevant document's dense score that a negative must stay below, in [0, 1]; 0: off. If that score is negative, the same absolute distance is required. BM25 alone has no dense scores, so nothing is excluded.
    margin: float = 0.95
    seed: int = 0  # seed of the random choice among candidates

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise ConfigError(f"ranks must be 1 <= from <= to, found from {self.first} to {self.last}")


def mine(
    collection: Collection,
    split: str,
    schema: FieldSchema,
    options: MiningOptions,
    dense: EncodedCorpus | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Header, list[QueryNegatives], dict[str, Any]]:
    """Mines negatives for every judged query of a collection."""
    if dense is None and options.retriever != "lexical":
        raise ConfigError(f"retriever {options.retriever!r} needs a model or a checkpoint; give --model")
    miner = _Miner(collection, schema, options, dense)
    lines: list[QueryNegatives] = []
    for start in range(0, len(collection.queries), BLOCK_QUERIES):
        lines += miner.block(range(start, min(start + BLOCK_QUERIES, len(collection.queries))))
        progress(len(lines), len(collection.queries))
    header = Header(
        data=collection.name,
        split=split,
        documents_hash=documents_hash(collection.documents),
        queries=len(lines),
        model=SourceRecord(name=dense.source.name, sha256=dense.source.hash) if dense else None,
        options=asdict(options),
    )
    figures = {
        "queries": len(lines),
        "queries_with_negatives": sum(bool(line.negatives) for line in lines),
        "negatives": sum(len(line.negatives) for line in lines),
        "left_out": {reason: miner.left_out[reason] for reason in ("relevant", "equal", "margin")},
    }
    return header, lines, figures


class _Candidate(NamedTuple):
    """A possible negative."""

    rank: int
    number: int
    score: float


class _Miner:
    """One run of mining: the retrievers, and counts of excluded documents."""

    def __init__(
        self,
        collection: Collection,
        schema: FieldSchema,
        options: MiningOptions,
        dense: EncodedCorpus | None,
    ) -> None:
        self.collection = collection
        self.options = options
        self.dense = dense
        names = [spec.name for spec in schema.fields if spec.kind == "text"]
        lexical = options.retriever == "lexical"
        self._lexical = LexicalRetriever(collection.documents, names) if lexical else None
        self._numbers = {document.id: number for number, document in enumerate(collection.documents)}
        self._texts = _text_keys(collection.documents, names)
        self.left_out: Counter[str] = Counter()

    def block(self, numbers: Sequence[int]) -> Iterator[QueryNegatives]:
        """Lines for queries, given by number."""
        texts = [self.collection.queries[number] for number in numbers]
        vectors, has_words = self.dense.encode(texts) if self.dense else (None, None)
        for i, (number, ranking) in enumerate(zip(numbers, self._rankings(texts, vectors), strict=True)):
            is_blank = has_words is not None and not has_words[i]
            chosen = self._choose(
                number, [] if is_blank else ranking, None if vectors is None else vectors[i]
            )
            yield QueryNegatives(self.collection.query_ids[number], texts[i], chosen)

    def _rankings(self, texts: Sequence[str], vectors: NDArray[np.float32] | None) -> list[Ranking]:
        """The ranking of each query, down to the last requested rank."""
        if self._lexical:
            queries = [Query(str(i), text) for i, text in enumerate(texts)]
            run = self._lexical.search(queries, self.options.last)
            return [
                [(self._numbers[hit.document_id], hit.score) for hit in run[query.id]] for query in queries
            ]
        assert self.dense and vectors is not None  # noqa: S101 - `mine` asks for it
        scores, rows = self.dense.nearest(vectors, self.options.last)
        pairs = zip(rows.tolist(), scores.tolist(), strict=True)
        return [list(zip(row, score, strict=True)) for row, score in pairs]

    def _choose(
        self, query: int, ranking: Ranking, vector: NDArray[np.float32] | None
    ) -> tuple[Negative, ...]:
        first, most = self.options.first, self.options.count
        hits = [_Candidate(rank, *hit) for rank, hit in enumerate(ranking[first - 1 :], first)]
        kept = self._within_margin(query, self._without_positives(query, hits), vector)
        if len(kept) > most:
            # Seeded by the query itself, so that its negatives do not depend on other queries.
            key = zlib.crc32(self.collection.query_ids[query].encode())
            random = np.random.default_rng([self.options.seed, key])
            kept = [kept[place] for place in sorted(random.permutation(len(kept))[:most])]
        documents, source = self.collection.documents, self.options.retriever
        return tuple(Negative(documents[each.number].id, each.rank, each.score, source) for each in kept)

    def _without_positives(self, query: int, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """Excludes relevant documents and those with the same text as one."""
        relevant = self.collection.relevant[query]
        texts = {self._texts[number] for number in relevant}
        kept = []
        for candidate in candidates:
            is_relevant = candidate.number in relevant
            if is_relevant or self._texts[candidate.number] in texts:
                self.left_out["relevant" if is_relevant else "equal"] += 1
            else:
                kept.append(candidate)
        return kept

    def _within_margin(
        self, query: int, candidates: Sequence[_Candidate], vector: NDArray[np.float32] | None
    ) -> list[_Candidate]:
        """Excludes documents that score near the best relevant document or above it."""
        if self.dense is None or vector is None or not self.options.margin:
            return list(candidates)
        best = float((self.dense.vectors[sorted(self.collection.relevant[query])] @ vector).max())
        bound = best - (1.0 - self.options.margin) * abs(best)
        scores = self.dense.vectors[[candidate.number for candidate in candidates]] @ vector
        kept = [candidate for candidate, score in zip(candidates, scores, strict=True) if score < bound]
        self.left_out["margin"] += len(candidates) - len(kept)
        return kept


def _text_keys(documents: Sequence[Document], names: Sequence[str]) -> list[str]:
    """Keys that are equal for documents with the same text, ignoring case, white space and URLs."""
    keys = []
    for number, document in enumerate(documents):
        texts = [" ".join(text.lower().split()) for name in names for text in document.fields.get(name, ())]
        # A document without text is equal only to itself: texts contain no NUL, so its number cannot be a text.
        keys.append("\n".join(text for text in texts if text) or f"\0{number}")
    return keys


def read_header(path: Path) -> Header:
    """Reads the first line."""
    return _read(path)[0]


def read_negatives(path: Path, collection: Collection) -> list[tuple[int, ...]]:
    """Reads the negatives of a collection, without those that it now judges relevant."""
    header, lines = _read(path)
    if header.documents_hash != documents_hash(collection.documents):
        raise MismatchError(
            f"{path.name} was mined from other documents ({header.data}) than those of {collection.name}; mine again"
        )
    negatives: list[tuple[int, ...]] = [()] * len(collection.queries)
    queries = {identifier: number for number, identifier in enumerate(collection.query_ids)}
    documents = {document.id: number for number, document in enumerate(collection.documents)}
    if unknown := {each for _, ids in lines.values() for each in ids} - documents.keys():
        raise FormatError(
            f"{path.name} has no document {min(map(str, unknown))!r} in the collection; mine again"
        )
    if not queries.keys() & lines.keys():
        raise MismatchError(
            f"{path.name} has none of the {len(queries)} queries of {collection.name}: it was mined for split "
            f"{header.split!r}; mine again with --split"
        )
    for query_id in queries.keys() & lines.keys():
        (text, ids), query = lines[query_id], queries[query_id]
        if text != collection.queries[query]:
            raise MismatchError(
                f"{path.name}: query {query_id} was {text!r:.80} and is now {collection.queries[query]!r:.80}; mine again"
            )
        relevant = collection.relevant[query]
        negatives[query] = tuple(row for row in (documents[each] for each in ids) if row not in relevant)
    return negatives


def match_negatives(
    paths: Sequence[Path], collections: Sequence[Collection]
) -> list[list[tuple[int, ...]] | None]:
    """Reads files, and assigns each to the collections whose documents and queries it was mined for."""
    hashes = [documents_hash(collection.documents) for collection in collections]
    matched: list[list[tuple[int, ...]] | None] = [None] * len(collections)
    for path in paths:
        header, lines = _read(path)
        places = [place for place, known in enumerate(hashes) if known == header.documents_hash]
        if not places:
            names = ", ".join(collection.name for collection in collections)
            raise MismatchError(
                f"{path.name} was mined from other documents ({header.data}) than {names}; mine again"
            )
        # Another collection may have the same documents with other queries (synthetic pairs), which the file lacks.
        for place in [p for p in places if lines.keys() & set(collections[p].query_ids)] or places[:1]:
            if matched[place] is not None:
                raise MismatchError(f"two files hold negatives of {collections[place].name}; give one")
            matched[place] = read_negatives(path, collections[place])
    return matched


def _read(path: Path) -> tuple[Header, dict[str, tuple[str, list[str]]]]:
    """The header of a file, and text and ids of negatives by query id."""
    try:
        first, *others = [line for line in path.read_bytes().split(b"\n") if line.strip()] or [b""]
        header = Header.model_validate(parse_object(first))
        records = [parse_object(line) for line in others]
        lines = {
            each["query_id"]: (each["query"], [one["id"] for one in each["negatives"]]) for each in records
        }
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValidationError, RecordError, KeyError, TypeError) as error:
        fault = describe(error) if isinstance(error, ValidationError) else error
        raise FormatError(
            f"{path.name} is not a file of negatives of format {FORMAT_VERSION} ({fault}); make one with `glow mine`"
        ) from error
    if len(lines) != header.queries:
        raise FormatError(
            f"{path.name} holds {len(lines)} queries, its header says {header.queries}; mine again"
        )
    return header, lines
