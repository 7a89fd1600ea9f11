"""Shows the stages of a build, with a bar on a terminal and plain lines elsewhere, and measures time and memory."""

import ctypes
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from glow.commands import Advance, progress, write_line


def peak_memory_bytes() -> int:
    """The peak memory of this process since `reset_peak_memory`, including mapped pages of files."""
    try:
        # ru_maxrss also counts the parent process, before exec.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_memory() -> None:
    """Resets the peak to the present value, if the system supports that (Linux, see proc(5))."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def release_memory() -> None:
    """Returns free memory to the system: glibc would keep the 60 MB of a closed tower."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


class Stages:
    """Runs stages one after another, shows their progress and records their times."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.seconds: dict[str, float] = {}  # stage -> seconds
        self.peaks: dict[str, int] = {}  # stage -> peak memory of this process in bytes

    @property
    def report(self) -> dict[str, float]:
        """Seconds of each stage and in all, rounded to milliseconds."""
        stages = {name: round(took, 3) for name, took in self.seconds.items()}
        return {**stages, "total": round(sum(self.seconds.values()), 3)}

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
        """Runs one stage; yields a function to call with the amount done."""
        start = time.perf_counter()
        release_memory()
        reset_peak_memory()
        with progress(self._out, name, total, unit) as advance:
            yield advance
        self.seconds[name] = time.perf_counter() - start
        self.peaks[name] = peak_memory_bytes()

    def done_before(self, name: str, seconds: float, peak: int) -> None:
        """Shows a stage that an earlier run finished, and its time then."""
        self.seconds[name], self.peaks[name] = seconds, peak
        self.note(f"{name}: done before")

    def note(self, line: str) -> None:
        """Shows a message between the stages."""
        write_line(self._out, line)
