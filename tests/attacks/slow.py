"""Clients that send or read slowly, or send without end, directly and through the proxy of Compose."""

import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.attacks.harness import Plain, peak_mb, serving
from tests.ports import free_port

__all__ = ["slow_clients"]

HEAD = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"query": "run a function in another thread", "top_k": 50}'
SEARCH = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
Kind = tuple[int, bytes, bytes, float]
KINDS: dict[str, Kind] = {
    "slow headers": (200, HEAD + b"X: ", b"a", 0.5),
    "slow headers, many": (1_100, HEAD + b"X: ", b"a", 0.5),
    "slow bodies": (200, HEAD + b"Content-Length: 2000\r\n\r\n{", b"a", 0.5),
    "responses unread": (200, SEARCH, b"", 0.5),
    "endless header": (2, HEAD + b"X: ", b"a" * (1 << 18), 0.0),
    "pipelined requests": (2, GET, GET * 500, 0.0),
}
"""Name -> connections, first bytes, further bytes, and seconds between them."""


def slow_clients(index_root: Path, seconds: float, tree: Path) -> dict[str, Any]:
    """Each kind of slow client beside a plain one, which has another address."""
    figures = {}
    for way in ("direct", "proxy") if shutil.which("haproxy") else ("direct",):
        for name, kind in KINDS.items():
            with (
                serving(index_root, "--workers", "1", "--cache-entries", "0", tree=tree) as service,
                _proxy(service.url, tree) if way == "proxy" else nullcontext("") as proxy,
            ):
                url = proxy or service.url
                alone, beside = (Plain(url, pace_s=0.03, is_new_connection=True) for _ in range(2))
                alone.ask(seconds)
                with _attacked(url, kind):
                    time.sleep(1.5)
                    beside.ask(seconds)
                    memory = round(peak_mb(service.workers()[0], "VmRSS"))
            both = {"alone": alone.summary(), "beside": beside.summary()}
            figures[f"{name}, {way}"] = {**both, "memory_mb": memory}
    return figures


@contextmanager
def _proxy(url: str, tree: Path) -> Iterator[str]:
    """Starts HAProxy with the configuration of Compose before one replica."""
    port, text = free_port(), (tree / "docker" / "haproxy.cfg").read_text(encoding="utf-8")
    text = re.sub(r"resolvers engine\n(    .*\n)+|    server service-2 .*\n", "", text)
    text = text.replace("bind :8080", f"bind 127.0.0.1:{port}").replace(
        "service-1:8080", urlsplit(url).netloc
    )
    text = text.replace(" resolvers engine init-addr last,libc,none", "")
    process = subprocess.Popen(
        ["haproxy", "-f", "/dev/stdin"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.close()
    time.sleep(2)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _attacked(url: str, kind: Kind) -> Iterator[None]:
    """Runs slow clients during the block."""
    count, start, more, pause_s = kind
    ended = threading.Event()

    def run(connections: int) -> None:
        opened = list(filter(None, (_connected(url, start) for _ in range(connections))))
        while not ended.wait(pause_s):
            for place, each in enumerate(opened):
                try:
                    each.sendall(more)
                except TimeoutError:
                    pass
                except OSError:
                    if not pause_s:
                        opened[place] = _connected(url, start) or each
        for each in opened:
            each.close()

    each = 1 if count < 10 else count
    threads = [threading.Thread(target=run, args=(each,), daemon=True) for _ in range(count // each)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


def _connected(url: str, start: bytes) -> socket.socket | None:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    connection.bind(("127.0.0.2", 0))
    connection.settimeout(1)
    try:
        connection.connect((urlsplit(url).hostname, urlsplit(url).port))
        connection.sendall(start)
        return connection
    except OSError:
        return None
