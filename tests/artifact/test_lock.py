"""One process at a time changes an index root, and a dead one changes nothing any more."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from glow.artifact import IndexRoot
from glow.errors import BusyError, ReadOnlyError

HOLD = """
import sys, time
from pathlib import Path
from glow.artifact import IndexRoot
with IndexRoot(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_another_process_is_refused_and_told_who_holds_it(
    tmp_path: Path, holder: "subprocess.Popen[bytes]"
) -> None:
    with pytest.raises(BusyError, match=f"process {holder.pid} "), IndexRoot(tmp_path).locked(wait_s=0.1):
        pass
    holder.kill()
    holder.wait()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path, holder: "subprocess.Popen[bytes]") -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with IndexRoot(tmp_path).locked(wait_s=0.0):
        pass


def test_a_waiter_gets_it_when_the_holder_ends(tmp_path: Path, holder: "subprocess.Popen[bytes]") -> None:
    threading.Timer(0.3, holder.kill).start()
    started = time.monotonic()
    with IndexRoot(tmp_path).locked(wait_s=30.0):
        assert time.monotonic() - started > 0.2
    holder.wait()


def test_a_holder_may_take_it_again_inside_and_other_threads_wait(tmp_path: Path) -> None:
    root = IndexRoot(tmp_path)
    order: list[str] = []

    def other() -> None:
        with root.locked():
            order.append("other")

    with root.locked(), root.locked():
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_a_folder_that_cannot_be_written_says_so() -> None:
    with (
        pytest.raises(ReadOnlyError, match="run the command with write access"),
        IndexRoot(Path("/proc/nowhere" if os.geteuid() else "/sys/kernel")).locked(),
    ):
        pass
