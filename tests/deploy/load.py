"""A client that asks without pause and counts what it did not get: no answer is asked for twice."""

import http.client
import itertools
import json
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

__all__ = ["Load", "search"]

CLIENTS = 4
PAUSE_S = 0.02
TIMEOUT_S = 40.0
_WORDS = ("directory", "socket", "thread", "date", "compress", "regular expression", "queue", "hash")


def search(port: int, query: str, top_k: int = 5) -> tuple[int, dict[str, object], str]:
    """Asks once, on a connection of its own: the status, the answer, and the index version that answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        return _post(connection, query, top_k)
    finally:
        connection.close()


def _post(
    connection: http.client.HTTPConnection, query: str, top_k: int
) -> tuple[int, dict[str, object], str]:
    body = json.dumps({"query": query, "top_k": top_k, "timeout_ms": 30_000})
    connection.request("POST", "/search", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read()), answer.headers.get("X-Index-Version", "")


class Load:
    """Searches from a few clients while a block runs, and counts what was answered with 200, by which version, or lost."""

    def __init__(self, port: int) -> None:
        self.answered = 0
        self.lost: list[str] = []
        self.versions: Counter[str] = Counter()
        self.slowest_s = 0.0
        self._port = port
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(place,)) for place in range(CLIENTS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, place: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        for number in itertools.count():
            if self._end.wait(PAUSE_S):
                break
            # Every query is another one, so that no cache answers in place of a replica.
            query = f"{_WORDS[number % len(_WORDS)]} {place} {number}"
            begin = time.monotonic()
            try:
                status, answer, version = _post(connection, query, 3)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._note(begin, f"{type(error).__name__}: {error}", "")
                connection.close()
                continue
            self._note(begin, "" if status == 200 else f"{status}: {answer}", version)
        connection.close()

    def _note(self, begin: float, fault: str, version: str) -> None:
        with self._lock:
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
            if fault:
                self.lost.append(fault)
            else:
                self.answered += 1
                self.versions[version] += 1
