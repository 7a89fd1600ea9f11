"""A folder in the making is told from one that a killed process left."""

import subprocess
import sys
from pathlib import Path

import pytest

from glow.artifact import write_artifact
from glow.artifact.making import (
    REMOVED,
    discard,
    folder_for,
    is_abandoned,
    is_temporary,
    set_aside,
    set_aside_abandoned,
)

DIE = """
import os, sys
from pathlib import Path
from glow.artifact.making import folder_for
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


@pytest.mark.parametrize("name", ["v1", ".lock", ".work", ".v1-12345678-old", ".v1-1234567", ".-12345678"])
def test_other_names_are_none_of_a_folder_in_the_making(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert not is_temporary(tmp_path / name)


def test_a_link_is_no_folder_in_the_making(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / ".v1-12345678").symlink_to(tmp_path / "other")
    assert not is_temporary(tmp_path / ".v1-12345678")


def test_what_is_set_aside_has_another_name_at_once(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "elsewhere").mkdir()
    aside = set_aside(tmp_path / "v1", tmp_path / "elsewhere")
    assert aside.parent == tmp_path / "elsewhere" and not (tmp_path / "v1").exists()
