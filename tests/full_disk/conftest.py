"""Full disks: a small file system in memory, with a file that leaves as much space as a test wants."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

__all__ = ["Disk", "MakeDisk"]


class Disk:
    """A file system of its own, of which a file takes what nobody else is to have.

    Args:
        path: where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / ".filler"

    def fill(self, free_bytes: int = 0) -> None:
        """Leaves this much space, rounded to pages."""
        self.empty()
        status = os.statvfs(self.path)
        size = max(status.f_bavail * status.f_frsize - free_bytes, 0)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))

    def empty(self) -> None:
        """Frees the space again."""
        self._filler.unlink(missing_ok=True)


MakeDisk = Callable[[int], Disk]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MakeDisk]:
    """Mounts disks of so many megabytes, until the test ends; only root can."""
    mounted: list[Path] = []

    def mount(megabytes: int) -> Disk:
        path = tmp_path / f"disk-{len(mounted)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(
                f"no file system can be mounted here ({done.stderr.strip()}); run as root, as CI does"
            )
        mounted.append(path)
        return Disk(path)

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=False)
