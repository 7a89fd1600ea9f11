"""uvicorn's supervisor of worker processes, with patience for workers that load an index."""

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
"""How long a worker that is to take another's place may load."""
_logger = logging.getLogger(__name__)


def _says_more(record: logging.LogRecord) -> bool:
    """Not so where uvicorn adds to a worker's own words that it did not start."""
    return "failed to start, stopping the parent process" not in record.getMessage()


class Supervisor(Multiprocess):
    """Starts as many workers as are wanted, and again where one ends; SIGHUP exchanges them one by one.

    A worker has started once it listens, which one of several does when its index is loaded (`glow_service.app`).
    """

    def run(self) -> None:
        """Runs until it is told to stop, or its workers cannot start, of which they have said why."""
        logging.getLogger("uvicorn.error").addFilter(_says_more)
        if sys.platform == "linux":  # libraries of other systems may not survive a fork
            # Forked, not spawned: workers share what this process imported, and start a second earlier. It opened no index,
            # and runs one thread.
            _subprocess.spawn = multiprocessing.get_context("fork")  # type: ignore[assignment]
            gc.collect()
            gc.freeze()
        super().run()

    def restart_all(self) -> None:
        """Exchanges each worker: its successor serves before it ends."""
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
        """Whether a worker listens, waited for; uvicorn's own wait does not hear of a stop."""
        until = time.monotonic() + LONGEST_LOAD_S
        while time.monotonic() < until and process.process.is_alive() and not self._is_to_stop():
            if process.is_ready(timeout=1):
                return True
            time.sleep(POLL_S)
        return False

    def _is_to_stop(self) -> bool:
        """Whether a signal to stop waits; `run` acts on it."""
        return not STOPS.isdisjoint(self.signal_queue)
