"""Writes: the documents of a request, the replicas that have to serve them, and the state of each write."""

import asyncio
import codecs
import json
import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from glow.artifact import IndexRoot
from glow.collection import bare_line, known_id, read_document
from glow.contract import Reject
from glow.errors import ArtifactError, Fault, QueryError, RecordError
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
from glow.records import Document
from glow_service.errors import MalformedJsonError, OverloadedError, RequestError

_BLANKS = re.compile(r"[ \t\n\r]*")
# Possessive quantifiers prevent backtracking, so the time is linear for any text.
_UP_TO_BRACKETS = re.compile(
    r"""(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([\[{]++|[\]}]++)""", re.DOTALL
)
# Finds the end of a value; accepts errors that concern one document only: long numbers, NaN, control characters.
_ENDS = json.JSONDecoder(parse_int=float, parse_constant=lambda name: None, strict=False)
_ESCAPED = "surrogateescape"
"""Keeps invalid UTF-8, so that only its document is rejected."""


def documents_of(body: bytes) -> Iterator[bytes]:
    """Yields the documents of `{"documents": [...]}`, or the body itself as one document.

    If the body is not JSON, earlier documents were already yielded.
    """
    text = body.removeprefix(codecs.BOM_UTF8).decode(errors=_ESCAPED)
    start = _after_blanks(text, 0)
    if not text.startswith("{", start):
        _end_of_body(text, _value(text, start)[1])
        raise _fault("", 'expected a document, or {"documents": […]}')
    at = _after_blanks(text, start + 1)
    key, at = _value(text, at) if text.startswith('"', at) else (None, at)
    if key != "documents":
        value, end = _value(text, start)
        _end_of_body(text, end)
        if isinstance(value, dict) and "documents" in value:
            raise _list_alone()
        yield _bytes(text[start:end])
        return
    at = _after(text, ":", at)
    if not text.startswith("[", at):
        _value(text, at)
        raise _list_alone()
    yield from _items(text, _after_blanks(text, at + 1))


def _items(text: str, at: int) -> Iterator[bytes]:
    """Yields the items of the list, and checks the rest of the body."""
    while not text.startswith("]", at):
        start = at
        at = _value(text, start)[1]
        yield _bytes(text[start:at])
        at = _after_blanks(text, at)
        if not text.startswith("]", at):
            at = _after(text, ",", at)
            if text.startswith("]", at):
                raise _malformed("Illegal trailing comma before end of array", at)
    at = _after_blanks(text, at + 1)
    if text.startswith(",", at):
        raise _list_alone()
    _end_of_body(text, _after(text, "}", at))


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value at a position, and its end; the value is None if it is nested too deeply."""
    try:
        return _ENDS.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _malformed(error.msg, error.pos) from error
    except RecursionError:
        return None, _end_of_nested(text, at)


def _end_of_nested(text: str, at: int) -> int:
    """The end of a list or an object, found by its brackets."""
    depth, start = 0, at
    while found := _UP_TO_BRACKETS.match(text, at):
        at = found.end()
        count = at - found.start(1)
        if found[1][0] in "[{":
            depth += count
        elif count >= depth:
            return found.start(1) + depth
        else:
            depth -= count
    raise _malformed("a value without an end", start)


def _after(text: str, mark: str, at: int) -> int:
    """The position after an expected character and white space."""
    at = _after_blanks(text, at)
    if not text.startswith(mark, at):
        raise _malformed(f"expected {mark!r}", at)
    return _after_blanks(text, at + 1)


def _end_of_body(text: str, at: int) -> None:
    if (at := _after_blanks(text, at)) < len(text):
        raise _malformed("more than one value", at)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _bytes(text: str) -> bytes:
    return text.encode(errors=_ESCAPED)


def _malformed(reason: str, at: int) -> MalformedJsonError:
    detail = f"{reason} at character {at}"
    return MalformedJsonError(f"the body is not JSON: {detail}", [Fault("", detail)])


def _list_alone() -> RequestError:
    return _fault("/documents", "expected a list of documents, and no other member")


# Checks the documents of a write one by one; only invalid ones are rejected.

SHOWN_ID = 200
"""Most characters of a rejected document's id in a response."""


@dataclass(frozen=True, slots=True)
class AcceptedDocuments:
    """The documents of a request."""

    documents: list[dict[str, Any]]  # accepted documents, as JSON values
    rejects: list[Reject]


def read_documents(data: bytes, names: Sequence[str], most: int, max_bytes: int) -> AcceptedDocuments:
    """Reads one document, or `{"documents": [...]}`."""
    return _checked(documents_of(data), names, most, max_bytes)


def read_lines(data: bytes, names: Sequence[str], most: int, max_bytes: int) -> AcceptedDocuments:
    """Reads JSON Lines, one document each, as `read_documents` does; empty lines are skipped."""
    # As in a build, only a line feed ends a line.
    lines = (bare_line(line, is_first=not number) for number, line in enumerate(BytesIO(data)))
    return _checked((line for line in lines if line.strip()), names, most, max_bytes)


def read_ids(body: Mapping[str, Any], most: int) -> list[str]:
    """Reads `{"ids": [...]}`."""
    ids = body.get("ids")
    if not isinstance(ids, list) or not all(isinstance(each, str) and each for each in ids):
        raise _fault("/ids", "expected a list of ids, as non-empty strings")
    if not 1 <= len(ids) <= most:
        raise _fault("/ids", f"expected 1 to {most} ids, found {len(ids)}")
    return ids


def _checked(lines: Iterable[bytes], names: Sequence[str], most: int, max_bytes: int) -> AcceptedDocuments:
    """Checks documents one by one; reading stops if there are too many."""
    good: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    count = 0
    for place, line in enumerate(lines):
        count += 1
        if count > most:
            raise _fault("/documents", f"expected at most {most} documents; send several requests")
        try:
            good.append(_as_json(read_document(line, names, None, max_bytes)))
        except RecordError as error:
            rejects.append(Reject(place, _shown_id(line[: max_bytes + 1]), str(error)))
    if not good:
        first = f"; the first: {rejects[0].reason}" if rejects else ""
        raise _fault("/documents", f"found {count} documents, none of which can be indexed{first}")
    return AcceptedDocuments(good, rejects)


def _shown_id(line: bytes) -> str | None:
    """The id of a rejected document, shortened for a response."""
    identifier = known_id(line)
    return None if identifier is None else identifier[:SHOWN_ID].encode(errors="replace").decode()


def _as_json(document: Document) -> dict[str, Any]:
    """A document as the JSON object of a collection's line."""
    fields = {name: list(values) for name, values in document.fields.items() if values}
    return {"_id": document.id, **fields, **document.metadata}


def _fault(pointer: str, detail: str) -> RequestError:
    return RequestError(f"{pointer or 'the body'}: {detail}", [Fault(pointer, detail)])


# The version that each replica serves, in small files next to the write log, which all replicas share.

REPLICAS_FOLDER = "replicas"
"""A small file per replica, with the version that it serves."""
LOOK_S = 0.1
BEAT_S = 2.0
GONE_S = 10.0
"""A replica whose file is older than this process's by more seconds counts as ended."""
_logger = logging.getLogger(__name__)


class Replicas:
    """The replicas: this process and the others."""

    def __init__(self, folder: Path, live: Callable[[], str]) -> None:
        self._folder = folder / REPLICAS_FOLDER
        self._live = live
        # A process that is restarted in its container has the same host and process id.
        self._path = self._folder / f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replicas", daemon=True)

    def start(self) -> None:
        """Starts to report this process's version."""
        self._thread.start()

    def close(self) -> None:
        """Stops reporting, and removes this process's file."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._path.unlink(missing_ok=True)

    def served(self) -> list[str]:
        """The version that each replica serves, this process among them."""
        others = []
        for path in self._folder.glob("[!.]*"):
            with suppress(FileNotFoundError):  # the replica has just ended
                # The modification times of all files come from the same clock, the file server's.
                others.append((path.stat().st_mtime, path.name, path.read_text(encoding="utf-8")))
        now = next((at for at, name, _ in others if name == self._path.name), 0.0)
        return [
            self._live(),
            *(version for at, name, version in others if name != self._path.name and now - at < GONE_S),
        ]

    def _run(self) -> None:
        told, told_at = "", float("-inf")
        while not self._ended.wait(LOOK_S):
            version, now = self._live(), time.monotonic()
            if not version or (version == told and now - told_at < BEAT_S):
                continue
            try:
                self._tell(version)
            except OSError as error:
                if told_at >= 0:
                    _logger.warning("cannot report the live version to other replicas: %s", error)
                self._ended.wait(BEAT_S)
            told, told_at = version, now

    def _tell(self, version: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f".{self._path.name}")
        partial.write_text(version, encoding="utf-8")
        partial.replace(self._path)


# The state of writes: waiting, applied to a version, or served by every replica; waiting requests share checks.

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class OperationState:
    """The state of a write."""

    # `visible`: every replica serves the version that it was `applied` to, or a later one.
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

    def __init__(self, root: Path, folder: Path, served: Callable[[], Sequence[str]], most: int) -> None:
        self._root, self._folder, self._served, self._most = IndexRoot(root), folder, served, most
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
        if self._places >= self._most:
            raise OverloadedError(
                f"{self._most} requests already wait for visible writes, which is the limit; remove wait=visible, and "
                "use GET /operations/{id}"
            )
        self._places += 1
        try:
            yield
        finally:
            self._places -= 1

    async def look(self, operation: OperationId) -> OperationState:
        """The current state of a write."""
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._look, [operation])
        state = found[operation]
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
        wanted = set(operations)
        self._outcomes = {name: each for name, each in self._outcomes.items() if name in wanted}
        applied, served = self._applied(), self._served()
        return {each: self._state_of(each, applied, served) for each in wanted}

    def _applied(self) -> IngestState:
        """How far the log was applied; the entry in a version never changes."""
        try:
            version = self._root.current()
            if version != self._published[0]:
                self._published = version, published_state(self._root, version)
        except ArtifactError:
            pass  # the watcher reports the error; use state.json and the last known version
        return read_state(self._folder).with_later(self._published[1])

    def _state_of(
        self, operation: OperationId, applied: IngestState, served: Sequence[str]
    ) -> OperationState | None:
        if operation.number > applied.applied.get(operation.writer, Position()).number:
            is_known = operation in self._waiting or has_log(self._folder, operation)
            return OperationState("waiting") if is_known else None
        outcome = self._outcomes.get(operation) or find_outcome(self._folder, operation)
        if outcome is None:  # its version was published, but its outcome is not written yet
            return OperationState(_served_by(served, self._published[0]), self._published[0])
        self._outcomes[operation] = outcome
        if outcome.state == "failed":
            return OperationState("failed", outcome.version, reason=outcome.reason)
        return OperationState(
            _served_by(served, outcome.version), outcome.version, outcome.before, outcome.counts
        )


def _served_by(served: Sequence[str], version: str) -> Literal["visible", "applied"]:
    """Whether all replicas serve a version or a later one; names of versions sort by time."""
    return "visible" if served and all(each >= version for each in served) else "applied"
