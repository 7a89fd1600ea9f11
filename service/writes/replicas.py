"""The version that each replica serves, in small files next to the write log, which all replicas share."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["Replicas"]

REPLICAS_FOLDER = "replicas"
"""A small file per replica, with the version that it serves."""
LOOK_S = 0.1
BEAT_S = 2.0
GONE_S = 10.0
"""A replica whose file is older than this process's by more seconds counts as ended."""
_logger = logging.getLogger(__name__)


class Replicas:
    """The replicas: this process and the others.

    Args:
        folder: directory of the write log.
        live: returns the version that this process serves; "" for none.
    """

    def __init__(self, folder: Path, live: Callable[[], str]) -> None:
        self._folder = folder / REPLICAS_FOLDER
        self._live = live
        # A process that is restarted in its container has the same host and process id.
        self._path = self._folder / f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replicas", daemon=True)

    def start(self) -> None:
        """Starts to report this process's version."""
        self._thread.start()

    def close(self) -> None:
        """Stops reporting, and removes this process's file."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._path.unlink(missing_ok=True)

    def served(self) -> list[str]:
        """The version that each replica serves, this process among them."""
        others = []
        for path in self._folder.glob("[!.]*"):
            with suppress(FileNotFoundError):  # the replica has just ended
                # The modification times of all files come from the same clock, the file server's.
                others.append((path.stat().st_mtime, path.name, path.read_text(encoding="utf-8")))
        now = next((at for at, name, _ in others if name == self._path.name), 0.0)
        return [
            self._live(),
            *(version for at, name, version in others if name != self._path.name and now - at < GONE_S),
        ]

    def _run(self) -> None:
        told, told_at = "", float("-inf")
        while not self._ended.wait(LOOK_S):
            version, now = self._live(), time.monotonic()
            if not version or (version == told and now - told_at < BEAT_S):
                continue
            try:
                self._tell(version)
            except OSError as error:
                if told_at >= 0:
                    _logger.warning("cannot report the live version to other replicas: %s", error)
                self._ended.wait(BEAT_S)
            told, told_at = version, now

    def _tell(self, version: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f".{self._path.name}")
        partial.write_text(version, encoding="utf-8")
        partial.replace(self._path)
