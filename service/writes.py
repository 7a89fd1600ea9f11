"""Writes: the documents of a request, and the state of each write."""

import asyncio
import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from glow.artifact import IndexRoot
from glow.collection import (
    MAX_DOCUMENT_BYTES,
    RecordKeys,
    bare_line,
    known_id,
    parse_document,
    parse_object,
    read_document,
    too_long,
)
from glow.contract import Reject
from glow.errors import ArtifactError, Fault, QueryError, RecordError
from glow.index.columns import instant_of
from glow.ingest import (
    IngestState,
    OperationId,
    Outcome,
    Position,
    find_outcome,
    has_log,
    published_state,
    read_state,
)
from glow_service.errors import MalformedJsonError, OverloadedError
from glow_service.live.resources import Resources
from glow_service.live.workers import WorkerGroup
from glow_service.search.request import fault, refusal

MAX_DOCUMENTS = 1_000
"""Most documents or ids of a write."""
MAX_WAITING = 256
"""Most requests of a process that wait for a visible write."""

# A body's documents are cut out as text, so that an invalid one is rejected alone, as in JSON Lines.

_BLANKS = " \t\n\r"
_LIST = re.compile(r'[ \t\n\r]*\{[ \t\n\r]*"documents"[ \t\n\r]*:[ \t\n\r]*\[[ \t\n\r]*')
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
_END = re.compile(r"[ \t\n\r]*\][ \t\n\r]*(,|\}[ \t\n\r]*\Z)")
# Finds the end of a value; accepts errors that concern one document only: long numbers, NaN, control characters.
_ENDS = json.JSONDecoder(parse_int=float, parse_constant=lambda name: None, strict=False)
_ALONE = "expected a list of documents, and no other member"
_ESCAPED = "surrogateescape"
"""Keeps invalid UTF-8, so that only its document is rejected."""


def documents_of(body: bytes) -> Iterator[bytes]:
    """Yields the documents of `{"documents": [...]}`, or the body itself as one document.

    If the body is not JSON, earlier documents were already yielded.
    """
    text = body.removeprefix(codecs.BOM_UTF8).decode(errors=_ESCAPED)
    begin = _LIST.match(text)
    if begin is None:
        yield _single(text.strip(_BLANKS)).encode(errors=_ESCAPED)
        return
    at = begin.end()
    comma = None if text.startswith("]", at) else begin
    while comma:
        start, (_, at) = at, _value(text, at)
        yield text[start:at].encode(errors=_ESCAPED)
        if comma := _COMMA.match(text, at):
            at = comma.end()
    end = _END.match(text, at)
    if end is None:
        raise _malformed("expected ',' or the end of the list and of the body", at)
    if end[1] == ",":
        raise fault("/documents", _ALONE)


def _single(text: str) -> str:
    value, end = _value(text, 0)
    if end < len(text):
        raise _malformed("more than one value", end)
    if not isinstance(value, dict):
        raise fault("", 'expected a document, or {"documents": […]}')
    if "documents" in value:
        raise fault("/documents", _ALONE)
    return text


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value at a position, and its end."""
    try:
        return _ENDS.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _malformed(error.msg, error.pos) from error
    except RecursionError as error:
        raise _malformed("a value nested too deep", at) from error


def _malformed(reason: str, at: int) -> MalformedJsonError:
    detail = f"{reason} at character {at}"
    return MalformedJsonError(f"the body is not JSON: {detail}", [Fault("", detail)])


# Checks the documents of a write one by one; only invalid ones are rejected.

SHOWN_ID = 200
"""Most characters of a rejected document's id in a response."""


@dataclass(frozen=True, slots=True)
class AcceptedDocuments:
    """The documents of a request."""

    documents: list[dict[str, Any]]  # accepted documents, as JSON values
    rejects: list[Reject]


def lines_of(body: bytes) -> Iterator[bytes]:
    """Yields the lines of JSON Lines that are not empty; as in a build, only a line feed ends a line."""
    lines = (bare_line(line, is_first=not number) for number, line in enumerate(BytesIO(body)))
    return (line for line in lines if line.strip())


_FITS: dict[str, Callable[[Any], bool]] = {
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "date": lambda value: isinstance(value, str) and instant_of(value) is not None,
    "string": lambda value: isinstance(value, str),
}
"""Type of a column -> whether a value has it."""


def read_patch(
    identifier: str, data: bytes, names: Sequence[str], recorded: Mapping[str, Any]
) -> dict[str, Any]:
    """Reads a merge patch of a document's metadata.

    One of its text fields or id is refused, and a value without the type that the index records for its column.
    """
    text = data.removeprefix(codecs.BOM_UTF8).decode(errors=_ESCAPED)
    try:
        line = _single(text.strip(_BLANKS)).encode(errors=_ESCAPED)
        if len(line) > MAX_DOCUMENT_BYTES:
            raise too_long(MAX_DOCUMENT_BYTES)
        patch = parse_object(line)
        head = json.dumps({"_id": identifier}).encode()[:-1] + (b", " if patch else b"")
        document = parse_document(head + line[1:], ())
    except RecordError as error:
        raise fault("", str(error)) from error
    faults = [
        Fault(f"/{name}", "the encoder reads this field; send the whole document to POST /documents")
        for name in names
        if name in patch
    ]
    for name in dict.fromkeys(("_id", recorded.get("id_field"))):
        if name in patch:
            faults.append(Fault(f"/{name}", "an id cannot change; delete the document and add another"))
    for name, kind in recorded.get("field_types", {}).items():
        value = patch.get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(map(_FITS[kind], values)):
            faults.append(Fault(f"/{name}", f"the index has this column as {kind}, found {value!r:.80}"))
    if faults:
        raise refusal(faults)
    return dict(document.metadata)


def read_ids(body: Mapping[str, Any]) -> list[str]:
    """Reads `{"ids": [...]}`."""
    ids = body.get("ids")
    if not isinstance(ids, list) or not all(isinstance(each, str) and each for each in ids):
        raise fault("/ids", "expected a list of ids, as non-empty strings")
    if not 1 <= len(ids) <= MAX_DOCUMENTS:
        raise fault("/ids", f"expected 1 to {MAX_DOCUMENTS} ids, found {len(ids)}")
    return ids


def read_documents(lines: Iterable[bytes], names: Sequence[str], keys: RecordKeys) -> AcceptedDocuments:
    """Checks documents one by one; reading stops if there are too many."""
    good: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    count = 0
    for place, line in enumerate(lines):
        count += 1
        if count > MAX_DOCUMENTS:
            raise fault("/documents", f"expected at most {MAX_DOCUMENTS} documents; send several requests")
        try:
            document = read_document(line, names, keys)
        except RecordError as error:
            identifier = known_id(line[: MAX_DOCUMENT_BYTES + 1], keys)
            if identifier is not None:
                identifier = identifier[:SHOWN_ID].encode(errors="replace").decode()
            rejects.append(Reject(place, identifier, str(error)))
        else:
            fields = {name: list(values) for name, values in document.fields.items() if values}
            good.append({"_id": document.id, **fields, **document.metadata})
    if not good:
        first = f"; the first: {rejects[0].reason}" if rejects else ""
        raise fault("/documents", f"found {count} documents, none of which can be indexed{first}")
    return AcceptedDocuments(good, rejects)


# The state of writes: waiting, applied to a version, or served by every worker; waiting requests share checks.

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class OperationState:
    """The state of a write."""

    # `visible`: every worker of this service serves the version that it was `applied` to, or a later one.
    state: Literal["waiting", "applied", "visible", "failed"]
    version: str = ""  # the version that contains it; "" while it waits
    before: str = ""  # the version before a deletion by filter; "" otherwise
    counts: dict[str, int] = field(default_factory=dict)
    reason: str = ""  # why it failed; "" otherwise

    @property
    def is_final(self) -> bool:
        """Whether the state is final."""
        return self.state in ("visible", "failed")


class Follower:
    """Checks the state of writes in a separate thread; only one event loop may use it."""

    def __init__(self, root: Path, folder: Path, resources: Resources, workers: WorkerGroup) -> None:
        self._root, self._folder = IndexRoot(root), folder
        self._resources, self._workers = resources, workers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="follow")
        self._waiting: dict[OperationId, list[asyncio.Future[OperationState]]] = {}
        self._places = 0
        self._task: asyncio.Task[None] | None = None
        self._published: tuple[str, IngestState] = ("", IngestState())
        self._outcomes: dict[OperationId, Outcome] = {}

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Reserves a place among the waiting requests for a block, before anything is written."""
        if self._places >= MAX_WAITING:
            raise OverloadedError(
                f"{MAX_WAITING} requests already wait for visible writes, which is the limit; remove wait=visible, and "
                "use GET /operations/{id}"
            )
        self._places += 1
        try:
            yield
        finally:
            self._places -= 1

    async def look(self, operation: OperationId) -> OperationState:
        """The current state of a write."""
        states = await asyncio.get_running_loop().run_in_executor(self._thread, self._look, [operation])
        state = states[operation]
        if state is None:
            raise QueryError(f"unknown operation {operation}")
        return state

    async def wait(self, operation: OperationId, seconds: float) -> OperationState:
        """Waits for the final state of an accepted write, at most so many seconds; returns its state then."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(operation, []).append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return await self.look(operation)
        finally:
            self._waiting[operation].remove(future)
            if not self._waiting[operation]:
                del self._waiting[operation]

    async def _poll(self) -> None:
        """Checks the waiting writes until none waits."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            states: dict[OperationId, OperationState | None] = {}
            with suppress(OSError):  # the disk of the log may work again before the requests time out
                states = await loop.run_in_executor(self._thread, self._look, list(self._waiting))
            for operation, state in states.items():
                for future in self._waiting.get(operation, ()):
                    if state is not None and state.is_final and not future.done():
                        future.set_result(state)
            await asyncio.sleep(POLL_S)

    def _look(self, operations: Iterable[OperationId]) -> dict[OperationId, OperationState | None]:
        """The states of writes, from small files; None for an unknown write."""
        names = set(operations)
        self._outcomes = {name: each for name, each in self._outcomes.items() if name in names}
        applied = self._applied()
        # A service of one process has no statuses.
        served = [each.version for each in self._workers.statuses()] or [self._resources.live().version]
        return {each: self._state_of(each, applied, min(served)) for each in names}

    def _applied(self) -> IngestState:
        """How far the log was applied; the entry in a version never changes."""
        try:
            version = self._root.current()
            if version != self._published[0]:
                self._published = version, published_state(self._root, version)
        except ArtifactError:
            pass  # the watcher reports the error; use state.json and the last known version
        return read_state(self._folder).with_later(self._published[1])

    def _state_of(self, operation: OperationId, applied: IngestState, served: str) -> OperationState | None:
        if operation.number > applied.applied.get(operation.writer, Position()).number:
            is_known = operation in self._waiting or has_log(self._folder, operation)
            return OperationState("waiting") if is_known else None
        outcome = self._outcomes.get(operation) or find_outcome(self._folder, operation)
        if outcome is None:  # its version was published, but its outcome is not written yet
            return OperationState(_seen(self._published[0], served), self._published[0])
        self._outcomes[operation] = outcome
        if outcome.state == "failed":
            return OperationState("failed", outcome.version, reason=outcome.reason)
        state = _seen(outcome.version, served)
        return OperationState(state, outcome.version, outcome.before, outcome.counts)


def _seen(version: str, served: str) -> Literal["visible", "applied"]:
    """Whether workers whose oldest version is `served` have a version; names of versions sort by time."""
    return "visible" if served >= version else "applied"
