"""How much memory a process holds at most: since it started, or since the count was last set to zero."""

import ctypes
import resource
import sys
from pathlib import Path

__all__ = ["peak_memory_bytes", "release_memory", "reset_peak_memory"]

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
CLEAR_PEAK = "5"
"""proc(5): sets the peak to what is held now."""


def peak_memory_bytes() -> int:
    """The most memory that this process held, mapped pages of files counted, since `reset_peak_memory`."""
    try:
        # ru_maxrss also counts the process that started this one, before exec.
        status = STATUS.read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_memory() -> bool:
    """Lets the peak begin anew; whether the system can (Linux): else a peak is that since the process started."""
    try:
        CLEAR.write_text(CLEAR_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def release_memory() -> None:
    """Gives back to the system what is free: glibc keeps what a closed tower held, 60 MB, for a next one."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # not glibc
        return
