"""One writer at a time, and temporary folders that cleanup tells from work in progress."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from glow.artifact import IndexRoot, write_artifact
from glow.artifact.lock import (
    REMOVED,
    discard,
    folder_for,
    is_abandoned,
    is_temporary,
    set_aside,
    set_aside_abandoned,
)
from glow.errors import BusyError, ReadOnlyError

HOLD = """
import sys, time
from pathlib import Path
from glow.artifact import IndexRoot
with IndexRoot(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


Process = subprocess.Popen[bytes]


@pytest.fixture
def holder(tmp_path: Path) -> Process:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_another_process_is_refused_and_told_who_holds_it(tmp_path: Path, holder: Process) -> None:
    with pytest.raises(BusyError, match=f"process {holder.pid} "), IndexRoot(tmp_path).locked(wait_s=0.1):
        pass
    holder.kill()
    holder.wait()


def test_a_waiter_gets_it_when_the_holder_is_killed(tmp_path: Path, holder: Process) -> None:
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


DIE = """
import os, sys
from pathlib import Path
from glow.artifact.lock import folder_for
with folder_for(Path(sys.argv[1]) / "v1") as folder:
    (folder / "half").write_text("x")
    os._exit(9)
"""


def test_a_folder_is_worked_in_as_long_as_its_maker_lives(tmp_path: Path) -> None:
    with folder_for(tmp_path / "v1") as folder:
        assert is_temporary(folder) and not is_abandoned(folder)
        assert set_aside_abandoned(folder) is None
        assert folder.stat().st_mode & 0o777 == 0o755
    assert not list(tmp_path.iterdir())
    assert is_abandoned(folder) and set_aside_abandoned(folder) is None


def test_what_a_killed_process_left_can_be_taken(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DIE, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == 9
    (folder,) = tmp_path.iterdir()
    assert is_temporary(folder) and is_abandoned(folder)
    aside = set_aside_abandoned(folder)
    assert aside is not None and aside.name.startswith(REMOVED) and (aside / "half").is_file()
    assert is_temporary(aside)
    discard(aside)
    discard(aside)  # a second one finds nothing to do
    assert not list(tmp_path.iterdir())


def test_a_version_that_got_its_name_is_not_removed_at_the_end(tmp_path: Path) -> None:
    with write_artifact(tmp_path / "v1", "index") as writer:
        (writer.folder / "file").write_text("x")
        assert not is_abandoned(writer.folder)
    assert [path.name for path in tmp_path.iterdir()] == ["v1"]


def test_other_names_and_links_are_none_of_a_folder_in_the_making(tmp_path: Path) -> None:
    others = ["v1", ".lock", ".work", ".v1-12345678-old", ".v1-1234567", ".-12345678"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / ".v1-12345678").symlink_to(tmp_path / "v1")
    assert not any(is_temporary(tmp_path / name) for name in (*others, ".v1-12345678"))


def test_what_is_set_aside_has_another_name_at_once(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "elsewhere").mkdir()
    aside = set_aside(tmp_path / "v1", tmp_path / "elsewhere")
    assert aside.parent == tmp_path / "elsewhere" and not (tmp_path / "v1").exists()
