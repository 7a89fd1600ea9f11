"""TCP ports for the servers of tests."""

import itertools
import os
import socket
from contextlib import suppress

_FIRST, _EACH, _OFFSETS = 10_000, 2_000, 1_000
_PROCESSES = 10
_REFUSED = 10_080
"""Chromium opens no page there."""
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES
_ports = itertools.count(_FIRST + _EACH * _process + os.getpid() % _OFFSETS)


def free_port() -> int:
    """A port that nobody listens on, and that nobody else will be given before a server binds it.

    It lies below those that the kernel hands out (32,768 and up), in a range of this test process's own, and is given
    once.
    """
    for port in _ports:
        if port == _REFUSED:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("unreachable")
