"""The socket of `glow serve`, which its workers share."""

import socket
from pathlib import Path

from glow_service.commands.serve import _listen
from glow_service.settings import Settings
from tests.ports import free_port


def test_a_body_does_not_wait_until_the_client_acknowledges_the_headers(tmp_path: Path) -> None:
    """It did where the event loop is Python's own: 48 ms instead of 2 for a cached response."""
    listening = _listen(Settings(index_root=tmp_path, port=free_port()))
    assert listening is not None
    with listening, socket.create_connection(listening.getsockname()), listening.accept()[0] as connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
