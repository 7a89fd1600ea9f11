"""Hard negatives: documents that a retriever ranks high for a query and that are not judged relevant.

A document that scores almost as high as the best relevant one is often relevant but unjudged. The margin, a fraction
of the positive's score, excludes it (Moreira et al., NV-Retriever, 2024). `glow.negatives` describes their files.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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

MiningRetriever = Literal["dense", "lexical", "both"]
Choose = Literal["random", "hardest"]
BLOCK_QUERIES = 256
Ranking = Sequence[tuple[int, float]]
"""Document numbers with scores, best first."""


@dataclass(frozen=True, slots=True)
class MiningOptions:
    """Options of mining."""

    retriever: MiningRetriever = "dense"  # vectors, BM25, or both (each gives its own ranks; a document in both counts at its better one)
    # first, last: first and last rank to mine, counted from 1 over all documents
    first: int = 10
    last: int = 100
    count: int = 8  # most negatives per query, >= 1
    # fraction of the best relevant document's dense score that a negative must stay below, in [0, 1]; 0: off. If that score is negative, the same absolute distance is required. BM25 alone has no dense scores, so nothing is excluded.
    margin: float = 0.95
    choose: Choose = "random"  # `random` candidates, or the `hardest`, which rank best
    seed: int = 0  # seed of the choice

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise ConfigError(f"ranks must be 1 <= from <= to, found from {self.first} to {self.last}")
        if self.count < 1 or not 0.0 <= self.margin <= 1.0:
            raise ConfigError(
                f"expected count >= 1 and margin in [0, 1], found count {self.count}, margin {self.margin}"
            )


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
    """A possible negative; candidates sort by rank, vectors before BM25."""

    rank: int
    source: str
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
        lexical = options.retriever != "dense"
        self._lexical = LexicalRetriever(collection.documents, names) if lexical else None
        self._numbers = {document.id: number for number, document in enumerate(collection.documents)}
        self._texts = _text_keys(collection.documents, names)
        self.left_out: Counter[str] = Counter()

    def block(self, numbers: Sequence[int]) -> Iterator[QueryNegatives]:
        """Lines for queries, given by number."""
        texts = [self.collection.queries[number] for number in numbers]
        vectors, has_words = self.dense.encode(texts) if self.dense else (None, None)
        rankings = self._rankings(texts, vectors)
        for i, number in enumerate(numbers):
            places = {source: ranking[i] for source, ranking in rankings.items()}
            if has_words is not None and not has_words[i]:
                places = {}
            chosen = self._choose(number, places, None if vectors is None else vectors[i])
            yield QueryNegatives(self.collection.query_ids[number], texts[i], chosen)

    def _rankings(
        self, texts: Sequence[str], vectors: NDArray[np.float32] | None
    ) -> dict[str, list[Ranking]]:
        """Source -> ranking of each query, down to the last requested rank."""
        rankings: dict[str, list[Ranking]] = {}
        if self.dense and vectors is not None and self.options.retriever != "lexical":
            scores, rows = self.dense.nearest(vectors, self.options.last)
            pairs = zip(rows.tolist(), scores.tolist(), strict=True)
            rankings["dense"] = [list(zip(row, score, strict=True)) for row, score in pairs]
        if self._lexical:
            queries = [Query(str(i), text) for i, text in enumerate(texts)]
            run = self._lexical.search(queries, self.options.last)
            rankings["lexical"] = [
                [(self._numbers[hit.document_id], hit.score) for hit in run[query.id]] for query in queries
            ]
        return rankings

    def _choose(
        self, query: int, rankings: Mapping[str, Ranking], vector: NDArray[np.float32] | None
    ) -> tuple[Negative, ...]:
        kept = self._within_margin(query, self._without_positives(query, self._candidates(rankings)), vector)
        if self.options.choose == "random" and len(kept) > self.options.count:
            # Seeded by the query itself, so that its negatives do not depend on other queries.
            key = zlib.crc32(self.collection.query_ids[query].encode())
            random = np.random.default_rng([self.options.seed, key])
            kept = [kept[place] for place in sorted(random.permutation(len(kept))[: self.options.count])]
        documents = self.collection.documents
        return tuple(
            Negative(documents[candidate.number].id, candidate.rank, candidate.score, candidate.source)
            for candidate in kept[: self.options.count]
        )

    def _candidates(self, rankings: Mapping[str, Ranking]) -> list[_Candidate]:
        """Distinct documents in the range of ranks, best rank first."""
        candidates = [
            _Candidate(rank, source, number, score)
            for source, ranking in rankings.items()
            for rank, (number, score) in enumerate(ranking, start=1)
        ]
        once: dict[int, _Candidate] = {}
        for candidate in sorted(candidates):
            once.setdefault(candidate.number, candidate)
        # Filtered last, so that a document above one retriever's range does not return at the other's lower rank.
        return [candidate for candidate in once.values() if candidate.rank >= self.options.first]

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
    return _header(path, _lines(path))


def read_negatives(path: Path, collection: Collection) -> list[tuple[int, ...]]:
    """Reads the negatives of a collection.

    A negative that the collection now judges relevant is excluded.
    """
    lines = _lines(path)
    header = _header(path, lines)
    if header.documents_hash != documents_hash(collection.documents):
        raise MismatchError(
            f"{path.name} was mined from other documents ({header.data}, {header.documents_hash[:12]}…) "
            f"than those of {collection.name}; mine again with --data on this folder"
        )
    if len(lines) - 1 != header.queries:
        raise FormatError(
            f"{path.name} holds {len(lines) - 1} queries, its header says {header.queries}; mine again"
        )
    negatives: list[tuple[int, ...]] = [()] * len(collection.queries)
    queries = {identifier: number for number, identifier in enumerate(collection.query_ids)}
    documents = {document.id: number for number, document in enumerate(collection.documents)}
    matched = set()
    for number, line in enumerate(lines[1:], start=2):
        try:
            query_id, text, ids = _parse(line)
            query = queries.get(query_id)
            if query in matched:
                raise RecordError(f"query {query_id!r} comes twice")
            if query is None:
                continue
            _check_query(path, query_id, text, collection.queries[query])
            matched.add(query)
            relevant = collection.relevant[query]
            numbers = (_number(identifier, documents) for identifier in ids)
            negatives[query] = tuple(document for document in numbers if document not in relevant)
        except RecordError as error:
            raise RecordError(f"{path.name} line {number}: {error}") from error
    if not matched:
        raise MismatchError(
            f"{path.name} has none of the {len(queries)} queries of {collection.name}: it was mined for split "
            f"{header.split!r}; mine again with --split"
        )
    return negatives


def match_negatives(
    paths: Sequence[Path], collections: Sequence[Collection]
) -> list[list[tuple[int, ...]] | None]:
    """Reads files, and assigns each to the collections whose documents and queries it was mined for."""
    hashes = [documents_hash(collection.documents) for collection in collections]
    matched: list[list[tuple[int, ...]] | None] = [None] * len(collections)
    for path in paths:
        header = read_header(path)
        if header.documents_hash not in hashes:
            names = ", ".join(collection.name for collection in collections)
            raise MismatchError(
                f"{path.name} was mined from other documents ({header.data}) than {names}; mine again"
            )
        # Another collection may have the same documents with other queries (synthetic pairs), which the file lacks.
        asked = {_parse(line)[0] for line in _lines(path)[1:]}
        places = [place for place, known in enumerate(hashes) if known == header.documents_hash]
        for place in [p for p in places if asked.intersection(collections[p].query_ids)] or places[:1]:
            if matched[place] is not None:
                raise MismatchError(f"two files hold negatives of {collections[place].name}; give one")
            matched[place] = read_negatives(path, collections[place])
    return matched


def _lines(path: Path) -> list[bytes]:
    try:
        return [line for line in path.read_bytes().split(b"\n") if line.strip()]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _header(path: Path, lines: Sequence[bytes]) -> Header:
    try:
        return Header.model_validate(parse_object(lines[0] if lines else b""))
    except ValidationError as error:
        fault = describe(error)
    except RecordError as error:
        fault = str(error)
    raise FormatError(
        f"{path.name} is not a file of negatives of format {FORMAT_VERSION}: its first line is not a header "
        f"({fault}); make one with `glow mine`"
    )


def _parse(line: bytes) -> tuple[str, str, list[str]]:
    value = parse_object(line)
    query_id, text, negatives = value.get("query_id"), value.get("query"), value.get("negatives")
    if not isinstance(query_id, str) or not isinstance(text, str) or not isinstance(negatives, list):
        raise RecordError(f"expected query_id, query and a list of negatives, found {value!r:.120}")
    ids = [negative.get("id") if isinstance(negative, dict) else None for negative in negatives]
    if not all(isinstance(identifier, str) for identifier in ids):
        raise RecordError(
            f"every negative must be an object with the id of a document, found {negatives!r:.120}"
        )
    return query_id, text, [str(identifier) for identifier in ids]


def _number(identifier: str, documents: Mapping[str, int]) -> int:
    if identifier not in documents:
        raise RecordError(f"no document {identifier!r} in the collection")
    return documents[identifier]


def _check_query(path: Path, query_id: str, found: str, expected: str) -> None:
    if found != expected:
        raise MismatchError(
            f"{path.name}: query {query_id} was {found!r:.80} and is now {expected!r:.80}; mine again"
        )
