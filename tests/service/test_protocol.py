"""What a client may take for itself on one connection, by raw sockets against a server in a thread."""

import inspect
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import glow_service.api.body
import glow_service.protocol
from glow_service.protocol import MAX_AHEAD

BODY = b'{"query": "how do bees find the way home"}'
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"


def post(extra: bytes = b"", body: bytes = BODY, path: bytes = b"/search") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % path
    return head + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture
def app(toy_index: Path, make_app: Any) -> FastAPI:
    return make_app(toy_index, max_in_flight=2, cache_entries=0)


@pytest.fixture
def client(app: FastAPI, serve_app: Any) -> Iterator[httpx.Client]:
    with serve_app(app) as client:
        yield client


def connect(client: httpx.Client, buffer: int = 0) -> socket.socket:
    found = socket.socket()
    if buffer:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    found.settimeout(10)
    found.connect((client.base_url.host, client.base_url.port or 80))
    return found


def answers(connection: socket.socket, count: int) -> list[int]:
    """Statuses of the next answers on a connection."""
    found: list[int] = []
    with connection.makefile("rb") as stream:
        while len(found) < count and (line := stream.readline()):
            assert line.startswith(b"HTTP/1.1 ")
            found.append(int(line.split()[1]))
            length = 0
            while (header := stream.readline()) != b"\r\n":
                name, _, value = header.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            stream.read(length)
    return found


@pytest.mark.parametrize("request_bytes", [post(OFFER), post(OFFER) + post() + post(OFFER)])
def test_an_offer_to_upgrade_is_declined_by_answering(client: httpx.Client, request_bytes: bytes) -> None:
    """Java's HttpClient offers h2c with every request that it sends in clear."""
    count = request_bytes.count(b"POST")
    with connect(client) as connection:
        connection.sendall(request_bytes)
        assert answers(connection, count) == [200] * count
        connection.sendall(post())
        assert answers(connection, 1) == [200]


def test_an_offer_to_upgrade_whose_body_comes_in_pieces_is_read(client: httpx.Client) -> None:
    whole = post(OFFER)
    end = whole.index(b"\r\n\r\n") + 4
    with connect(client) as connection:
        for part in (whole[:end], whole[end : end + 5], whole[end + 5 :], post()):
            connection.sendall(part)
            time.sleep(0.05)
        assert answers(connection, 2) == [200, 200]


def test_a_client_that_never_reads_loses_its_permit(
    client: httpx.Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glow_service.protocol, "MAX_WRITE_S", 0.3)
    large = post(body=b'{"query": "bees", "top_k": 50}')
    connections = [connect(client, buffer=2_048) for _ in range(2)]
    for connection in connections:
        connection.settimeout(1)
        with suppress(
            TimeoutError, ConnectionError
        ):  # what is behind the bound is discarded, until the end comes
            for _ in range(100_000):
                connection.sendall(large)
    deadline = time.monotonic() + 10
    while app.state.service.plain.admission.taken and time.monotonic() < deadline:
        time.sleep(0.05)
    assert app.state.service.plain.admission.taken == 0
    assert client.post("/search", json={"query": "bees"}).status_code == 200
    for connection in connections:
        with connection, pytest.raises(ConnectionError):  # it was ended from there
            connection.sendall(large)
            connection.sendall(large)


@pytest.mark.parametrize("target", [b"http://h/search", b"h:443", b"*"])
def test_a_tunnel_is_refused(client: httpx.Client, target: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with connect(client) as connection:
        connection.sendall(b"CONNECT " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answers(connection, 1) == [400] and connection.recv(1) == b""
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("more", [1, 40, 50 * MAX_AHEAD])
def test_requests_far_ahead_of_their_answers_are_refused(more: int, client: httpx.Client) -> None:
    """Those that were taken are answered in their order, the next one is told, and nobody reads the rest."""
    with connect(client) as connection:
        connection.sendall(GET * 30)
        assert answers(connection, 30) == [200] * 30
        sent = threading.Thread(target=_send_what_is_taken, args=(connection, GET * (1 + MAX_AHEAD + more)))
        sent.start()
        found = answers(connection, 1 + MAX_AHEAD + more)
        sent.join()
    assert set(found[:-1]) == {200} and found[-1] == 400 and len(found) >= 1 + MAX_AHEAD + 1
    assert client.get("/healthz").status_code == 200


def _send_what_is_taken(connection: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError):  # closed on the way, with requests unread
        connection.sendall(data)


def test_garbage_behind_pipelined_requests_is_told_after_them(client: httpx.Client) -> None:
    with connect(client) as connection:
        connection.sendall(GET * 5 + b"garbage that is no HTTP\r\n\r\n")
        assert answers(connection, 7) == [200] * 5 + [400]


def test_the_second_requests_headers_have_a_bound_too(client: httpx.Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(glow_service.protocol, "MAX_HEAD_S", 0.3)
    with connect(client) as connection:
        connection.sendall(GET)
        assert answers(connection, 1) == [200]
        connection.sendall(GET[:9])
        assert answers(connection, 1) == [408]


def test_the_rest_of_a_refused_body_does_not_hold_the_connection(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glow_service.protocol, "MAX_HEAD_S", 0.3)
    whole = post(body=b" " * 3_000, path=b"/nowhere")
    with connect(client) as connection:
        connection.sendall(whole[:300])
        assert answers(connection, 1) == [404]
        connection.sendall(whole[300:1_000])
        assert connection.recv(1) == b""


def test_a_refusal_before_an_announced_body_closes(client: httpx.Client) -> None:
    """After `Expect: 100-continue` nobody knows whether the body still comes."""
    head = post(b"Expect: 100-continue\r\n", path=b"/nowhere").split(b"\r\n\r\n")[0] + b"\r\n\r\n"
    with connect(client) as connection:
        connection.sendall(head)
        answer = connection.recv(65_536)
        assert b"404" in answer.split(b"\r\n")[0] and b"connection: close" in answer.lower()


RELIED_ON = (
    "app config cycle flow loop on_body on_header on_headers_complete on_message_begin on_message_complete on_url parser "
    "pipeline scope send_400_response transport url _start_asgi_task _unset_keepalive_if_required connection_made "
    "data_received"
).split()


def test_uvicorns_protocol_has_what_ours_relies_on() -> None:
    """It is not public (docs/decisions/0019): a release that renames something is found out here, by name."""
    source = inspect.getsource(HttpToolsProtocol)
    assert not [name for name in RELIED_ON if not re.search(rf"\b{name}\b", source)]


def raw(client: httpx.Client, content: bytes) -> bytes:
    """Everything that is answered until the connection closes."""
    with connect(client) as connection:
        connection.sendall(content)
        answer = b""
        with suppress(OSError):
            while piece := connection.recv(65_536):
                answer += piece
    return answer


CHUNKED = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"0x5\r\nhello\r\n", b"5\r\nhelloXX", b"fffffffffffffffff\r\n"])
def test_a_malformed_chunk_gets_its_400(client: httpx.Client, chunk: bytes) -> None:
    answer = raw(client, CHUNKED + chunk)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"malformed_http" in answer


def test_garbage_behind_a_request_does_not_cost_its_answer(client: httpx.Client) -> None:
    answer = raw(client, post() + b"\x00garbage\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ") and b'"hits"' in answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n",
        b"POST /search HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /search HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        post(b"Content-Type: text/plain\r\n"),
        post(b"Content-Encoding: identity\r\nContent-Encoding: gzip\r\n"),
    ],
)
def test_what_two_servers_might_read_differently_is_refused(client: httpx.Client, head: bytes) -> None:
    assert raw(client, head).startswith(b"HTTP/1.1 400 ")


def test_http_1_0_needs_no_host(client: httpx.Client) -> None:
    assert raw(client, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_body_that_trickles_in_loses_its_permit(
    client: httpx.Client, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glow_service.api.body, "GRACE_S", 0.5)
    whole = post()
    with connect(client) as connection:
        connection.sendall(whole[:-20])
        started = time.monotonic()
        for at in range(len(whole) - 20, len(whole) - 1):
            time.sleep(0.1)
            with suppress(OSError):
                connection.sendall(whole[at : at + 1])
        assert b"504 " in connection.recv(65_536)
    assert time.monotonic() - started < 10  # the deadline of these tests is 30 s
    assert app.state.service.plain.admission.taken == 0
