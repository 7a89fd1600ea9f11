"""What a client may take for itself on one connection, by raw sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

import glow_service.api.body
from glow_service.commands.serve import MAX_HEAD_BYTES
from glow_service.state import Service
from tests.service.asking import ServeOpen
from tests.until import until

BODY = b'{"query": "how do bees find the way home"}'
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
POST = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def post(extra: bytes = b"", body: bytes = BODY) -> bytes:
    return POST + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture
def opened(serve_open: ServeOpen) -> Iterator[tuple[httpx.Client, Service]]:
    with serve_open(max_in_flight=2) as found:
        yield found


def connect(client: httpx.Client, buffer: int = 1 << 16) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    found.settimeout(10)
    found.connect((client.base_url.host, client.base_url.port or 80))
    return found


def raw(client: httpx.Client, *parts: bytes) -> bytes:
    """Everything that comes back until the connection closes."""
    answer = b""
    with connect(client) as connection:
        with suppress(OSError):  # it may be closed before all is sent, after an answer
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while piece := connection.recv(65_536):
                answer += piece
    return answer


def test_an_offer_to_upgrade_is_declined_by_answering(http: httpx.Client) -> None:
    """Java's HttpClient offers h2c with every request that it sends in clear."""
    answer = b""
    with connect(http) as connection:
        for part in (post(OFFER) + post(), post(OFFER)[:-5], post(OFFER)[-5:]):
            connection.sendall(part)
        while (piece := connection.recv(65_536)) and (answer := answer + piece).count(b'"hits"') < 3:
            pass
    assert answer.count(b"HTTP/1.1 200 ") == 3


def test_a_client_that_never_reads_holds_no_permit(opened: tuple[httpx.Client, Service]) -> None:
    client, service = opened
    large = post(body=b'{"query": "bees", "top_k": 50}')
    connections = [connect(client, buffer=2_048) for _ in range(2)]
    for connection in connections:
        connection.settimeout(0.2)
        with suppress(TimeoutError):  # the server reads no further ahead of what it cannot send
            for _ in range(100_000):
                connection.sendall(large)
    until(lambda: service.pool.admission.taken == 0)
    assert client.post("/search", json={"query": "bees"}).status_code == 200
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    "start", [b"GET /", b"GET / HTTP/1.1\r\nX-Long: ", b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 9_000]
)
def test_headers_that_do_not_end_are_refused_early(http: httpx.Client, start: bytes) -> None:
    assert raw(http, start + b"a" * MAX_HEAD_BYTES).startswith(b"HTTP/1.1 400 ")
    raw(http, start, *[b"a" * (1 << 18)] * 80)  # quadratic work would take minutes
    assert http.get("/healthz").status_code == 200


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "malformed",
    [
        b"\0\xff\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n",
        post(b"Content-Length: 3\r\n"),
        CHUNKED + b"zz\r\n",
        CHUNKED + b"fffffffffffffffffffffff\r\n",
        CHUNKED + b"1\r\n{\r\n0\r\nX-Long: " + b"a" * 3 * MAX_HEAD_BYTES,
    ],
)
def test_what_is_malformed_or_read_differently_by_another_server_is_refused(
    http: httpx.Client, malformed: bytes
) -> None:
    assert raw(http, malformed).split()[1] in (b"400", b"501")
    assert http.get("/healthz").status_code == 200


def test_a_body_that_trickles_in_loses_its_permit(
    opened: tuple[httpx.Client, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glow_service.api.body, "GRACE_S", 0.2)
    client, service = opened
    whole, ended = post(), threading.Event()
    with connect(client) as connection:
        connection.sendall(whole[:-20])

        def trickle() -> None:
            for place in range(len(whole) - 20, len(whole) - 1):
                if ended.wait(0.05):
                    return
                connection.sendall(whole[place : place + 1])

        thread = threading.Thread(target=trickle)
        thread.start()
        assert b" 504 " in connection.recv(65_536)
        ended.set()
        thread.join()
    until(lambda: service.pool.admission.taken == 0)
