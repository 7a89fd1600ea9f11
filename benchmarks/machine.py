"""Describes the machine of a benchmark, for the head of its results."""

import os
import platform
import subprocess
from pathlib import Path

__all__ = ["machine"]


def machine() -> dict[str, str]:
    """CPU model, cores, memory, Python and commit, as plain strings."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        flags = next((line for line in info.read_text().splitlines() if line.startswith("flags")), "")
        vectors = [name for name in ("avx2", "avx512_vnni", "amx_int8", "amx_bf16") if name in flags.split()]
        cpu = f"{names[0] if names else cpu} ({', '.join(vectors)})"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "python": platform.python_version(),
        "commit": git.stdout.strip(),
    }
