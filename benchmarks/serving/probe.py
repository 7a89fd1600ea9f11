"""A light probe during a load: latency of `/healthz` over a new connection each time, as orchestrators do."""

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
    """Probes the server while the block runs.

    Args:
        port: port of the server.
        path: path to request.

    Attributes:
        failed: responses other than 200, or missing after 5 s.
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
        """Latency of every request, including connecting and failed ones."""
        return np.array(self._taken, np.float64)

    def __enter__(self) -> Self:
        """Starts the probe."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the probe."""
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
