"""A light probe beside a load: how long `/healthz` takes, over a connection of its own each time, as orchestrators ask."""

import threading
import time
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.serving.workload import Request, call

__all__ = ["HealthProbe"]

PERIOD_S = 0.1
TIMEOUT_S = 5.0


class HealthProbe:
    """Asks all the while the block runs.

    Args:
        port: of the server.
        path: what to ask.

    Attributes:
        failed: answers other than 200, and none within 5 s.
    """

    def __init__(self, port: int, path: str = "/healthz") -> None:
        self._port = port
        self._request = Request(path)
        self._taken: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failed = 0

    @property
    def latency_ms(self) -> NDArray[np.float64]:
        """Latency of every answer, connecting counted; one that failed counts as its time too."""
        return np.array(self._taken, np.float64)

    def __enter__(self) -> Self:
        """Starts to ask."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Asks no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            start = time.perf_counter()
            try:
                status, _ = call(self._port, self._request, TIMEOUT_S)
            except OSError:
                status = 0
            self._taken.append((time.perf_counter() - start) * 1e3)
            self.failed += status != 200
