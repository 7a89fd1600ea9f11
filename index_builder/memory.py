"""Peak memory of a process since it started, or since the last reset."""

import ctypes
import resource
import sys
from pathlib import Path

__all__ = ["peak_memory_bytes", "release_memory", "reset_peak_memory"]

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
CLEAR_PEAK = "5"
"""Writing 5 resets the peak to the present value; see proc(5)."""


def peak_memory_bytes() -> int:
    """The peak memory of this process since `reset_peak_memory`, including mapped pages of files."""
    try:
        # ru_maxrss also counts the parent process, before exec.
        status = STATUS.read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_memory() -> bool:
    """Resets the peak; returns whether the system supports that (Linux). Otherwise the peak counts from the start."""
    try:
        CLEAR.write_text(CLEAR_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def release_memory() -> None:
    """Returns free memory to the system: glibc would keep the 60 MB of a closed tower."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # not glibc
        return
