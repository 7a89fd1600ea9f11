"""uvicorn's supervisor of worker processes, changed to wait while workers load an index."""

import gc
import logging
import multiprocessing
import signal
import sys
import time

from uvicorn import _subprocess
from uvicorn.supervisors.multiprocess import Multiprocess, Process

__all__ = ["LONGEST_LOAD_S", "Supervisor"]

POLL_S = 0.1
STOPS = frozenset((signal.SIGTERM, signal.SIGINT))
LONGEST_LOAD_S = 600.0
"""How long a replacement worker may load, in seconds."""
_logger = logging.getLogger(__name__)


def _says_more(record: logging.LogRecord) -> bool:
    """Drops uvicorn's message about a failed start, which the worker has already logged."""
    return "failed to start, stopping the parent process" not in record.getMessage()


class Supervisor(Multiprocess):
    """Starts the workers, restarts those that end, and on SIGHUP replaces them one by one.

    A worker has started once it listens. A worker that replaces another one loads its index first (`glow_service.app`).
    """

    def run(self) -> None:
        """Runs until it receives a stop signal, or its workers cannot start; they log the reason."""
        logging.getLogger("uvicorn.error").addFilter(_says_more)
        if sys.platform == "linux":  # libraries of other systems may not survive a fork
            # Forked workers share the imported modules and start a second faster than spawned ones. This process has one
            # thread and has opened no index.
            _subprocess.spawn = multiprocessing.get_context("fork")  # type: ignore[assignment]
            gc.collect()
            gc.freeze()
        super().run()

    def restart_all(self) -> None:
        """Replaces each worker; the new one serves before the old one ends."""
        for place, old in enumerate(self.processes):
            new = Process(self.config, self.sockets)
            new.start()
            if not self._has_started(new):
                new.kill()
                new.join()
                if not self._is_to_stop():
                    fields = {"pid": old.pid}
                    _logger.error("a new worker did not start; the old ones stay", extra={"fields": fields})
                return
            old.terminate()
            old.join()
            self.processes[place] = new

    def _has_started(self, process: Process) -> bool:
        """Waits until a worker listens; returns whether it does. Unlike uvicorn's own wait, it ends at a stop signal."""
        until = time.monotonic() + LONGEST_LOAD_S
        while time.monotonic() < until and process.process.is_alive() and not self._is_to_stop():
            if process.is_ready(timeout=1):
                return True
            time.sleep(POLL_S)
        return False

    def _is_to_stop(self) -> bool:
        """Whether a stop signal was received; `run` handles it."""
        return not STOPS.isdisjoint(self.signal_queue)
