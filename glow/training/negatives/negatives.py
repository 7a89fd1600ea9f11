"""Reads files of hard negatives (`glow.negatives`) for the collections that they were mined from."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from glow.collection import parse_object
from glow.errors import FormatError, InputError, MismatchError, RecordError
from glow.negatives import FORMAT_VERSION, Header, documents_hash
from glow.options import describe
from glow.training.data import Collection

__all__ = ["match_negatives", "read_header", "read_negatives"]


def read_header(path: Path) -> Header:
    """Reads the first line.

    Raises:
        InputError: if the file cannot be read.
        FormatError: if the line is not a header of this format.
    """
    return _header(path, _lines(path))


def read_negatives(path: Path, collection: Collection) -> list[tuple[int, ...]]:
    """Reads the negatives of a collection.

    A negative that the collection now judges relevant is excluded.

    Args:
        path: a file of `write_negatives`.
        collection: a collection with the mined documents and any of the queries.

    Returns:
        Document numbers in the file's order for each query number of the collection; empty for a query that the
        file lacks.

    Raises:
        InputError: if the file cannot be read.
        FormatError: if it is not a file of negatives, or cut off.
        MismatchError: if they were mined from other documents or for other queries.
        RecordError: if a line is invalid.
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
    """Reads files, and assigns each to the collections whose documents and queries it was mined for.

    Returns:
        For each collection, in order: its negatives as in `read_negatives`, or None without a file.

    Raises:
        MismatchError: if a file matches no collection, or two match the same.
        GlowError: as `read_negatives`.
    """
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
