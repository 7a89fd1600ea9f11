"""A set of shards, open: the query tower and the one term table here, everything else where the shards are."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from glow.artifact import FileRecord, Manifest, verify
from glow.errors import DocumentNotFoundError, FormatError, MismatchError, ShardError
from glow.records import Document
from glow.runtime import Device
from glow.search import (
    MODEL_FOLDER,
    STEMS_FOLDER,
    TERMS_FOLDER,
    Index,
    IndexKind,
    SearchParams,
    ShardSet,
    Speller,
    columns_in_memory,
    is_set,
    not_found,
    open_query_side,
    read_shard_set,
    set_spelling,
    shard_of,
)
from glow.text import Analyzer, TermTable
from glow_service.errors import NotAvailableError
from glow_service.shards.connections import ShardConnections
from glow_service.shards.transport import LocalShards, Transport
from glow_service.shards.wire import (
    DOCUMENT_BYTES,
    OPEN_BYTES,
    DocumentCall,
    OpenCall,
    document_from_json,
    has_vectors_from_json,
)

__all__ = ["ShardedDocuments", "ShardedIndex", "open_set", "open_version"]

OPEN_S = 600.0
"""How long shards may take to open a version."""
WAIT_S = 30.0
"""How long a service that starts waits for shards that start, too."""
DOCUMENT_S = 5.0
_logger = logging.getLogger(__name__)


class ShardedVectors:
    """What is known of the vectors of all shards without asking them.

    Args:
        shards: the set.
        can_read: whether every shard can read a vector by its document.
    """

    device = "shards"

    def __init__(self, shards: ShardSet, *, can_read: bool) -> None:
        self.kind: IndexKind = shards.shards[0].kind
        self.dimensions = shards.shards[0].dimensions
        self.has_vectors = can_read
        self._count = shards.documents

    def __len__(self) -> int:
        return self._count

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        params: SearchParams | None = None,
        allowed: object = None,
        order: object = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Refused: a search of a set asks the shards for candidates of both parts."""
        raise _apart()

    def score(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Refused, as `search`."""
        raise _apart()

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Refused, as `search`."""
        raise _apart()


class ShardedDocuments:
    """Documents by id, from the shard to which they fall.

    Args:
        shards: the set.
        transport: reaches its shards.
    """

    def __init__(self, shards: ShardSet, transport: Transport) -> None:
        self._shards = shards
        self._transport = transport
        self.count = shards.documents

    def get(self, document_id: str) -> Document:
        """The document of an id.

        Raises:
            DocumentNotFoundError: if there is none.
            ShardError: if its shard does not answer.
        """
        return self._ask(document_id, vector=False)[0]

    def vector(self, document_id: str) -> NDArray[np.float32]:
        """A document's vector, float32 [D], L2-normalised.

        Raises:
            DocumentNotFoundError, ShardError: as `get`.
        """
        document, vector = self._ask(document_id, vector=True)
        if vector is None:
            raise ShardError(f"the shard that holds {document.id!r:.80} sends no vector")
        return vector

    def _ask(self, document_id: str, *, vector: bool) -> tuple[Document, NDArray[np.float32] | None]:
        number = shard_of(document_id, len(self._shards.shards))
        call = DocumentCall(version=self._shards.shards[number].version, id=document_id, vector=vector)
        body = orjson.dumps(call.model_dump())
        answers = self._transport.ask("document", {number: body}, DOCUMENT_S, DOCUMENT_BYTES)
        if number in answers.found:
            try:
                return document_from_json(answers.found[number])
            except FormatError as error:
                raise ShardError(f"shard {number}: {error}") from error
        if answers.errors.get(number) == DocumentNotFoundError.code:
            raise not_found(document_id)
        raise ShardError(
            f"shard {number}, which holds {document_id!r:.80} if any does: {answers.failed[number]}"
        )

    def rows(self, rows: Sequence[int]) -> list[Document]:
        """None: rows of shards mean nothing here. Whoever wants some documents, whichever, gets none."""
        return []

    def find(self, document_id: str) -> int | None:
        """Refused: there are no rows to find."""
        raise _apart()

    def ids(self, rows: Sequence[int]) -> list[str]:
        """Refused, as `find`."""
        raise _apart()

    def scan(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Refused, as `find`."""
        raise _apart()

    def by_id(self) -> Iterator[tuple[str, int, str, str]]:
        """Refused, as `find`."""
        raise _apart()


class ShardedWords:
    """What is known of the words of all shards without asking them.

    Args:
        shards: the set; some shard has words.
        terms: the table of the terms that its lexical indexes hold.
    """

    def __init__(self, shards: ShardSet, terms: TermTable) -> None:
        self.analyzer = Analyzer(shards.shards[0].analyzer)
        self.largest = shards.largest or 0.0
        self._terms = terms
        self._count = shards.documents

    def __len__(self) -> int:
        return self._count

    def holds(self, word: str) -> bool:
        """Whether any document holds a word's term."""
        return self._terms.df(self.analyzer.term(word)) > 0

    def search(
        self, words: Sequence[str], k: int, allowed: object = None, order: object = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Refused, as `ShardedVectors.search`."""
        raise _apart()

    def score(self, words: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Refused, as `search`."""
        raise _apart()

    def contributions(self, words: Sequence[str], row: int) -> dict[str, float]:
        """Refused, as `search`."""
        raise _apart()

    def bound(self, words: Sequence[str]) -> float:
        """Refused, as `search`."""
        raise _apart()


def _apart() -> NotAvailableError:
    """What is said of a way to the rows of all shards, of which there is none: each shard has its own."""
    return NotAvailableError("not over a set of shards; ask an index that is one piece")


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class ShardedIndex(Index):
    """A set of shards as the service knows an index; what it cannot do without its shards' rows is None.

    Attributes:
        shards: the set.
        transport: reaches its shards.
        documents: by id, from the shards.
    """

    shards: ShardSet
    transport: Transport
    documents: ShardedDocuments

    @property
    def is_set(self) -> bool:
        """It is."""
        return True


def open_set(
    folder: Path,
    device: Device = "cpu",
    threads: int = 1,
    like: Index | None = None,
    connections: ShardConnections | None = None,
) -> ShardedIndex:
    """Verifies a set's own files, opens its query side, and has its shards open the versions that it names.

    Args:
        folder: of the set's version, in its index root.
        device, threads: of the query tower, and of shards in this process.
        like: an open index or set, for what both share.
        connections: the shards as services; None: they are opened here, below the same index root.

    Raises:
        ArtifactError: if missing or damaged, or parts that do not belong together.
        ConfigError: if there are not as many addresses as shards.
        ShardError: if a shard cannot open its version.
    """
    before = like if isinstance(like, ShardedIndex) else None
    manifest = verify(folder, "index")
    shards = read_shard_set(folder)
    fields = shards.fields
    if before is not None and _query_side(before.manifest) == _query_side(manifest):
        # Making a tower and its word pieces anew would hold up those who search meanwhile.
        preprocessor, encoder = before.preprocessor, before.encoder
    else:
        preprocessor, encoder = open_query_side(folder, manifest, device, threads)
    terms = TermTable.load(folder / STEMS_FOLDER) if (folder / STEMS_FOLDER).is_dir() else preprocessor.terms
    transport: Transport
    if connections is None:
        local = before.transport if before is not None and isinstance(before.transport, LocalShards) else None
        transport = LocalShards.open(folder.parent, shards, device, threads, local)
        _check(manifest, shards, transport)
        can_read = all(index.dense.has_vectors for index in transport.indexes)
    else:
        connections.require(len(shards.shards))
        transport = connections
        can_read = _open_elsewhere(shards, connections, must_all=like is not None)
    words = None if shards.largest is None else ShardedWords(shards, terms)
    tables = set_spelling(folder)
    return ShardedIndex(
        manifest=manifest,
        preprocessor=preprocessor,
        encoder=encoder,
        dense=ShardedVectors(shards, can_read=can_read),
        documents=ShardedDocuments(shards, transport),
        columns=columns_in_memory(
            [],
            {name: field.types for name, field in fields.items()},
            {name: field.documents for name, field in fields.items()},
            shards.left_out,
        ),
        impacts=words,
        speller=Speller(preprocessor.pieces, preprocessor.terms, tables, words) if tables else None,
        shards=shards,
        transport=transport,
    )


def open_version(
    folder: Path,
    device: Device = "cpu",
    threads: int = 1,
    like: Index | None = None,
    connections: ShardConnections | None = None,
) -> Index:
    """Opens a version, be it an index or a set; arguments and errors as for `Index.open` and `open_set`."""
    if is_set(folder):
        return open_set(folder, device, threads, like, connections)
    return Index.open(folder, device, threads, like=None if isinstance(like, ShardedIndex) else like)


def _query_side(manifest: Manifest) -> dict[str, FileRecord]:
    """The files that queries are read with."""
    folders = (f"{MODEL_FOLDER}/", f"{TERMS_FOLDER}/")
    return {name: file for name, file in manifest.files.items() if name.startswith(folders)}


def _check(manifest: Manifest, shards: ShardSet, local: LocalShards) -> None:
    """The shards' versions are those that the set was made of."""
    terms = manifest.hashes.get("terms")
    for number, (record, index) in enumerate(zip(shards.shards, local.indexes, strict=True)):
        if index.manifest.hash != record.manifest or index.manifest.hashes.get("terms") != terms:
            raise MismatchError(
                f"shard {number}: version {record.version} is not the one that {manifest.name} was made of; build the set again"
            )


def _open_elsewhere(shards: ShardSet, connections: ShardConnections, *, must_all: bool) -> bool:
    """Has every shard open its version; returns whether all can read vectors by document.

    A service that starts waits a while for all shards, and then goes on with those that answer: the others are opened
    when they come.

    Raises:
        ShardError: if one cannot, and all must; or if none can.
    """
    calls = {
        number: orjson.dumps(OpenCall(version=record.version, manifest=record.manifest).model_dump())
        for number, record in enumerate(shards.shards)
    }
    until = time.monotonic() + WAIT_S
    answers = connections.ask("open", calls, OPEN_S, OPEN_BYTES)
    while answers.failed and not must_all and time.monotonic() < until:
        time.sleep(1.0)
        answers = connections.ask("open", calls, OPEN_S, OPEN_BYTES)
    if answers.failed:
        reasons = "; ".join(f"shard {number}: {why}" for number, why in sorted(answers.failed.items()))
        if must_all or not answers.found:
            raise ShardError(f"not every shard could open its version: {reasons}")
        _logger.error("shards are missing", extra={"fields": {"reasons": reasons}})
    return all(has_vectors_from_json(body) for body in answers.found.values())
