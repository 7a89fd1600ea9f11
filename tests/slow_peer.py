"""A TCP proxy before a real server, which can be told to send the server's bytes one at a time, or none at all."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal, Self

from tests.ports import free_port

Mode = Literal["pass", "trickle", "hang"]
STEP_S = 0.5
TICK_S = 0.05


class SlowPeer:
    """Forwards connections to a port of 127.0.0.1; use it in a `with` block.

    Bytes that began to trickle go on trickling after the mode has changed, as in a network that was slow for a while.
    """

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self.port = free_port()
        self.mode: Mode = (
            "pass"  # bytes of the server are sent as they come, one each `STEP_S`, or not at all
        )
        self._closed = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._open)

    @contextmanager
    def slow(self, mode: Mode = "trickle") -> Iterator[None]:
        self.mode = mode
        try:
            yield
        finally:
            self.mode = "pass"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._listener.close()
        with self._lock:
            ends = list(self._open)
        for end in ends:
            _end(end)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        try:
            with client, socket.create_connection(self._server, timeout=5) as server:
                server.settimeout(None)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                asking = threading.Thread(target=self._forward, args=(client, server, False), daemon=True)
                asking.start()
                self._forward(server, client, True)
                asking.join()
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.discard(client)

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if is_answer:
                    self._answer(target, data)
                else:
                    target.sendall(data)
        _end(source)
        _end(target)

    def _answer(self, target: socket.socket, data: bytes) -> None:
        while self.mode == "hang" and target.fileno() != -1 and not self._closed.wait(TICK_S):
            pass
        if self.mode != "trickle":
            target.sendall(data)
            return
        for place in range(len(data)):
            target.sendall(data[place : place + 1])
            if self._closed.wait(STEP_S):
                return


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
