"""Whether the service in this container is ready: the health check of its image, without curl.

Runs as `python -I -S ready.py`, with nothing but sockets, so that asking every few seconds costs next to nothing.
"""

import os
import socket
import sys

TIMEOUT_S = 5.0


def is_ready(port: int) -> bool:
    """Whether `/readyz` on this machine answers 200."""
    request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(request)
            return connection.makefile("rb").readline(64).split()[1:2] == [b"200"]
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if is_ready(int(os.environ.get("GLOW_PORT", "8080"))) else 1)
