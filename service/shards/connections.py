"""Shards as services of their own, reached over kept HTTP connections.

A call is written to all shards before any answer is read, so a thread waits for the slowest, not for the sum. docs/results/scale.md
has what that costs, and why it is no framework's work.
"""

import http.client
import json
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from glow.errors import ConfigError
from glow_service.errors import VersionNotOpenError
from glow_service.shards.transport import Answers, Verb

__all__ = ["ShardConnections", "parse_shards"]

CONNECT_S = 1.0
REST_S = 1.0
"""How long a replica that failed is passed over, while another one answers."""
IDLE = 64
"""Connections to a replica that are kept for the next call."""
MAX_ANSWER_BYTES = 256 << 20
_logger = logging.getLogger(__name__)


class _FailedError(Exception):
    """A replica gave no answer."""


@dataclass(slots=True, eq=False)
class _Replica:
    """One service of a shard."""

    host: str
    port: int
    idle: "deque[http.client.HTTPConnection]" = field(default_factory=deque)
    rests_until: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True, eq=False)
class _Call:
    """A call on its way to a replica.

    Attributes:
        connection: that it was written to; None where it could not be.
        is_kept: whether an earlier call had used it.
        is_stale: whether it failed on a kept connection, which says nothing of the replica.
        reason: why there is no answer.
    """

    replica: _Replica | None
    connection: http.client.HTTPConnection | None = None
    is_kept: bool = False
    is_stale: bool = False
    reason: str = ""


def parse_shards(value: str) -> list[list[tuple[str, int]]]:
    """Reads the setting `shards`: `http://a:8080|http://b:8080,http://c:8080` are two shards, the first with two replicas.

    Raises:
        ValueError: if an address is none.
    """
    shards = []
    for group in value.split(","):
        replicas = []
        for address in group.split("|"):
            parts = urlsplit(address.strip())
            if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
                raise ValueError(
                    f"shards: expected addresses such as http://host:8080, found {address.strip()!r:.80}"
                )
            replicas.append((parts.hostname, parts.port or 80))
        shards.append(replicas)
    return shards


class ShardConnections:
    """The services of all shards; safe to use from many threads.

    Args:
        shards: host and port of each replica of each shard.
        key: that the shards ask for.
    """

    def __init__(self, shards: Sequence[Sequence[tuple[str, int]]], key: str) -> None:
        self._shards = [[_Replica(*address) for address in replicas] for replicas in shards]
        self._headers = {"Content-Type": "application/json", "X-API-Key": key}
        self._turn = 0
        self._opening = threading.Lock()
        self._reopening: set[int] = set()
        self._wanted: dict[int, deque[bytes]] = {}
        """The last two versions that each shard was to open: the set's that is live, and the one before or after it."""

    def __len__(self) -> int:
        return len(self._shards)

    def require(self, count: int) -> None:
        """Refuses a set of another number of shards.

        Raises:
            ConfigError: if it has not as many as there are addresses.
        """
        if count != len(self):
            raise ConfigError(
                f"this set has {count} shards, the setting shards names {len(self)}; name one address for each, by number"
            )

    def ask(self, verb: Verb, calls: Mapping[int, bytes], timeout_s: float) -> Answers:
        """As `Transport.ask`; a shard whose replica fails is asked again at another one, while time is left."""
        until = time.monotonic() + timeout_s
        if verb == "open":
            return self._open(calls, until)
        answers = Answers()
        sent = {number: self._send_to(number, verb, body, until) for number, body in calls.items()}
        for number, call in sent.items():
            tried: list[_Replica] = []
            while not self._answered(number, call, until, answers):
                if not call.is_stale and call.replica is not None:
                    tried.append(call.replica)
                if time.monotonic() >= until or len(tried) == len(self._shards[number]):
                    answers.failed.setdefault(number, call.reason)
                    break
                call = self._send_to(number, verb, calls[number], until, tried)
        return answers

    def _answered(self, number: int, call: "_Call", until: float, answers: Answers) -> bool:
        """Whether a call was answered; else it knows why not."""
        if call.connection is None:
            return False
        try:
            self._take(number, call, until, answers)
        except _FailedError as error:
            call.reason = str(error)
            return False
        return True

    def _open(self, calls: Mapping[int, bytes], until: float) -> Answers:
        """Asks every replica of every shard, for each opens for itself; side by side, since that takes its time."""
        answers = Answers()
        with ThreadPoolExecutor(len(calls), "open") as threads:
            for number, body in calls.items():
                wanted = self._wanted.setdefault(number, deque(maxlen=2))
                if body not in wanted:
                    wanted.append(body)
                threads.submit(self._ask_all, number, "open", body, until, answers)
        return answers

    def _send_to(
        self, number: int, verb: Verb, body: bytes, until: float, tried: Sequence[_Replica] = ()
    ) -> "_Call":
        """Writes a call to the next replica of a shard."""
        replica = self._choose(number, tried)
        if replica is None:
            return _Call(None, reason="no replica is left")
        return self._send(replica, verb, body, until)

    def _ask_all(self, number: int, verb: Verb, body: bytes, until: float, answers: Answers) -> None:
        """Asks every replica of a shard; one that answers is enough."""
        reasons = []
        for replica in self._shards[number]:
            replica.idle.clear()  # on a new connection: there is no second attempt
            call = self._send(replica, verb, body, until)
            if not self._answered(number, call, until, answers):
                reasons.append(call.reason)
        if number not in answers.found:
            answers.failed.setdefault(number, "; ".join(reasons))

    def _choose(self, number: int, tried: Sequence[_Replica]) -> _Replica | None:
        """The next replica in turn that did not just fail; one that did where there is no other."""
        replicas = [each for each in self._shards[number] if each not in tried]
        if not replicas:
            return None
        now, self._turn = time.monotonic(), self._turn + 1
        rested = [each for each in replicas if each.rests_until <= now] or replicas
        return rested[self._turn % len(rested)]

    def _send(self, replica: _Replica, verb: Verb, body: bytes, until: float) -> "_Call":
        """Writes a call, on a kept connection where there is one."""
        call = _Call(replica, self._kept(replica))
        call.is_kept = call.connection is not None
        try:
            if call.connection is None:
                wait_s = min(CONNECT_S, max(until - time.monotonic(), 0.001))
                call.connection = http.client.HTTPConnection(replica.host, replica.port, timeout=wait_s)
            call.connection.request("POST", f"/shard/{verb}", body, self._headers)
        except OSError as error:
            call.reason = self._failed(call, error)
        return call

    def _kept(self, replica: _Replica) -> http.client.HTTPConnection | None:
        """A kept connection on which nothing waits to be read: the other side says good-bye there."""
        while replica.idle:
            try:
                connection = replica.idle.pop()
            except IndexError:
                return None
            if connection.sock is not None and not _is_readable(connection.sock):
                return connection
            connection.close()
        return None

    def _take(self, number: int, call: "_Call", until: float, answers: Answers) -> None:
        """Reads an answer.

        Raises:
            _FailedError: if there is none, or one that another replica may not give.
        """
        connection, replica = call.connection, call.replica
        assert connection is not None and replica is not None  # noqa: S101 - it was sent
        try:
            if connection.sock is not None:
                connection.sock.settimeout(max(until - time.monotonic(), 0.001))
            response = connection.getresponse()
            body = response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise _FailedError(self._failed(call, error)) from error
        if len(replica.idle) < IDLE and response.isclosed() and not response.will_close:
            replica.idle.append(connection)
        else:
            connection.close()
        if response.status == 200:
            answers.found[number] = body
            return
        code, detail = _problem(body)
        if code == VersionNotOpenError.code:
            self._reopen(number)
        if response.status in (404, 422):
            answers.failed[number], answers.errors[number] = detail, code
            return
        raise _FailedError(f"{replica.name} answers {response.status}: {detail}")

    def _failed(self, call: "_Call", error: Exception) -> str:
        """Closes a connection that failed, and says how; one that was kept may only have been closed meanwhile."""
        if call.connection is not None:
            call.connection.close()
            call.connection = None
        assert call.replica is not None  # noqa: S101 - it was asked
        if call.is_kept and not isinstance(error, TimeoutError):
            call.is_stale = True
            call.replica.idle.clear()
        else:
            call.replica.rests_until = time.monotonic() + REST_S
        what = "does not answer in time" if isinstance(error, TimeoutError) else f"does not answer ({error})"
        return f"{call.replica.name} {what}"

    def _reopen(self, number: int) -> None:
        """Has a shard that was started again open what it is asked for, in the background; one attempt at a time."""
        with self._opening:
            if number in self._reopening:
                return
            self._reopening.add(number)
        threading.Thread(target=self._open_again, args=(number,), name="reopen", daemon=True).start()

    def _open_again(self, number: int) -> None:
        try:
            for body in list(self._wanted.get(number, ())):
                answers = Answers()
                self._ask_all(number, "open", body, time.monotonic() + 600.0, answers)
                if answers.failed:
                    _logger.warning("shard %d: %s", number, answers.failed[number])
        finally:
            with self._opening:
                self._reopening.discard(number)


def _is_readable(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        pass
    finally:
        sock.settimeout(CONNECT_S)
    return True


def _problem(body: bytes) -> tuple[str, str]:
    """Code and sentence of an error's body."""
    try:
        value = json.loads(body)
        return str(value.get("code", "")), str(value.get("detail", ""))[:500]
    except (ValueError, AttributeError):
        return "", "no problem+json"
