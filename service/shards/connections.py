"""Shards as services of their own, reached over kept HTTP connections.

A call is written to all shards before any response is read, so a thread waits for the slowest, not for the sum, and never
beyond the deadline. docs/results/scale.md has what that costs, and why it is no framework's work.
"""

import json
import logging
import selectors
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
from glow_service.shards.arrivals import Incoming, arrivals
from glow_service.shards.transport import Answers, Verb
from glow_service.shards.wire import OPEN_BYTES

__all__ = ["ShardConnections", "parse_shards"]

CONNECT_S = 1.0
REST_S = 1.0
"""How long a replica that failed is passed over, while another one answers."""
IDLE = 64
"""Connections to a replica that are kept for the next call."""
_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Replica:
    """One service of a shard.

    Attributes:
        is_late: whether the last call to it was not answered in time; then one call at a time finds out whether it is
            back, and the others do not wait for it.
        probed_until: when that call ends at the latest; 0 if there is none.
    """

    host: str
    port: int
    idle: deque[socket.socket] = field(default_factory=deque)
    rests_until: float = 0.0
    is_late: bool = False
    probed_until: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True, eq=False)
class _Call:
    """A call on its way to a replica.

    Attributes:
        sock: the connection that it was written to; None if it could not be.
        is_kept: whether an earlier call had used it.
        is_probe: whether it finds out if a late replica is back.
        is_stale: whether it failed on a kept connection, which says nothing of the replica.
        reason: why there is no answer.
    """

    replica: _Replica | None
    sock: socket.socket | None = None
    is_kept: bool = False
    is_probe: bool = False
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
        if not (key.isascii() and key.isprintable()):
            raise ConfigError("shard_key holds what no header can: use printable ASCII")
        self._key = key
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

    def ask(self, verb: Verb, calls: Mapping[int, bytes], timeout_s: float, most_bytes: int) -> Answers:
        """As `Transport.ask`; a shard whose replica fails is asked again at another one, while time is left."""
        until = time.monotonic() + timeout_s
        answers = Answers()
        if verb == "open":
            self._open(calls, until, most_bytes, answers)
            return answers
        tried: dict[int, list[_Replica]] = {number: [] for number in calls}
        with selectors.DefaultSelector() as waiting:

            def send(number: int) -> None:
                call = self._send_to_any(number, verb, calls[number], until, tried[number])
                if call.sock is None:
                    answers.failed.setdefault(number, call.reason)
                    return
                incoming = Incoming(call.sock, most_bytes)
                waiting.register(call.sock, selectors.EVENT_READ, (incoming, number, call))

            for number in calls:
                send(number)
            for key in arrivals(waiting, until):
                incoming, number, call = key.data
                if not self._finish(number, call, incoming, answers):
                    self._pass_over(call, tried[number])
                    answers.failed[number] = call.reason
                    if time.monotonic() < until:
                        send(number)
        for number in answers.found:
            answers.failed.pop(number, None)
        return answers

    def _send_to_any(
        self, number: int, verb: Verb, body: bytes, until: float, tried: list[_Replica]
    ) -> "_Call":
        """Writes a call to one replica of a shard after another until one of them takes it."""
        call = _Call(None, reason="no replica answers in time")
        while (replica := self._choose(number, tried)) is not None:
            call = self._send(replica, verb, body, until)
            if call.sock is not None:
                break
            self._pass_over(call, tried)
            if time.monotonic() >= until:
                break
        return call

    def _pass_over(self, call: "_Call", tried: list[_Replica]) -> None:
        """Has a call that failed not go to the same replica again, unless only a kept connection of it was gone."""
        if not call.is_stale and call.replica is not None:
            tried.append(call.replica)

    def _open(self, calls: Mapping[int, bytes], until: float, most_bytes: int, answers: Answers) -> None:
        """Asks every replica of every shard, for each opens for itself; side by side, since that takes its time."""
        with ThreadPoolExecutor(len(calls), "open") as threads:
            for number, body in calls.items():
                wanted = self._wanted.setdefault(number, deque(maxlen=2))
                if body not in wanted:
                    wanted.append(body)
                threads.submit(self._open_one, number, body, until, most_bytes, answers)

    def _open_one(self, number: int, body: bytes, until: float, most_bytes: int, answers: Answers) -> None:
        """Asks every replica of a shard; one that answers is enough."""
        reasons = []
        for replica in self._shards[number]:
            replica.idle.clear()  # on a new connection: there is no second attempt
            call = self._send(replica, "open", body, until)
            is_answered = False
            if call.sock is not None:
                with selectors.DefaultSelector() as waiting:
                    incoming = Incoming(call.sock, most_bytes)
                    waiting.register(call.sock, selectors.EVENT_READ, (incoming,))
                    for _ in arrivals(waiting, until):
                        is_answered = self._finish(number, call, incoming, answers)
            if not is_answered:
                reasons.append(call.reason)
        if number not in answers.found:
            answers.failed.setdefault(number, "; ".join(reasons))

    def _choose(self, number: int, tried: Sequence[_Replica]) -> _Replica | None:
        """The next replica in turn that did not just fail; one that did if there is no other and nobody waits for it."""
        now, self._turn = time.monotonic(), self._turn + 1
        replicas = [each for each in self._shards[number] if each not in tried and each.probed_until <= now]
        if not replicas:
            return None
        rested = [each for each in replicas if each.rests_until <= now] or replicas
        return rested[self._turn % len(rested)]

    def _send(self, replica: _Replica, verb: Verb, body: bytes, until: float) -> "_Call":
        """Writes a call, on a kept connection if there is one."""
        call = _Call(replica, self._kept(replica), is_probe=replica.is_late and verb != "open")
        replica.probed_until = until if call.is_probe else 0.0
        call.is_kept = call.sock is not None
        wait_s = min(CONNECT_S, max(until - time.monotonic(), 0.001))
        head = (
            f"POST /shard/{verb} HTTP/1.1\r\nHost: {replica.name}\r\nContent-Type: application/json\r\n"
            f"X-API-Key: {self._key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            if call.sock is None:
                call.sock = socket.create_connection((replica.host, replica.port), wait_s)
                call.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            call.sock.settimeout(wait_s)  # of all that is sent
            call.sock.sendall(head.encode() + body)
        except OSError as error:
            self._failed(call, error)
        return call

    def _kept(self, replica: _Replica) -> socket.socket | None:
        """A kept connection on which nothing waits to be read: the other side says good-bye there."""
        while replica.idle:
            try:
                sock = replica.idle.pop()
            except IndexError:
                return None
            if not _is_readable(sock):
                return sock
            sock.close()
        return None

    def _finish(self, number: int, call: "_Call", incoming: Incoming, answers: Answers) -> bool:
        """Takes a response that is whole or has failed; returns whether it is an answer, which no other replica gives."""
        replica = call.replica
        assert replica is not None  # noqa: S101 - it was sent
        if incoming.error is not None:
            self._failed(call, incoming.error)
            return False
        replica.is_late, replica.probed_until = False, 0.0
        if len(replica.idle) < IDLE and incoming.can_go_on:
            replica.idle.append(incoming.sock)
        else:
            incoming.sock.close()
        body = bytes(incoming.body)
        if incoming.status == 200:
            answers.found[number] = body
            return True
        code, detail = _problem(body)
        if code == VersionNotOpenError.code:
            self._reopen(number)
        if incoming.status in (404, 422):
            answers.failed[number], answers.errors[number] = detail, code
            return True
        call.reason = f"{replica.name} answers {incoming.status}: {detail}"
        return False

    def _failed(self, call: "_Call", error: Exception) -> None:
        """Closes a connection that failed, and says how; one that was kept may only have been closed meanwhile."""
        if call.sock is not None:
            call.sock.close()
            call.sock = None
        assert call.replica is not None  # noqa: S101 - it was asked
        call.replica.is_late |= isinstance(error, TimeoutError)
        if call.is_probe:
            call.replica.probed_until = 0.0
        if call.is_kept and isinstance(error, OSError) and not isinstance(error, TimeoutError):
            call.is_stale = True
            call.replica.idle.clear()
        else:
            call.replica.rests_until = time.monotonic() + REST_S
        what = "does not answer in time" if isinstance(error, TimeoutError) else f"does not answer ({error})"
        call.reason = f"{call.replica.name} {what}"

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
                self._open_one(number, body, time.monotonic() + 600.0, OPEN_BYTES, answers)
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
        detail = "".join(filter(str.isprintable, str(value.get("detail", ""))[:500]))
        return str(value.get("code", ""))[:50], detail
    except (ValueError, AttributeError, RecursionError):
        return "", "no problem+json"
