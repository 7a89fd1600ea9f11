"""A build that was cut short goes on; its work folder keeps finished steps and nothing else."""

import io
import json
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from glow.artifact import IndexRoot, verify
from glow.errors import BuildError, BusyError, InputError
from glow_index_builder.building.work import Step, WorkFolder, open_work
from glow_index_builder.progress import Stages
from glow_index_builder.versions.gc import collect
from tests.death import DEATH
from tests.program import python


def opened(root: Path, key: str | None = "key", *, resume: bool = True) -> AbstractContextManager[WorkFolder]:
    return open_work(root, key, Stages(io.StringIO()), resume=resume)


def make(work: WorkFolder, name: str = "read", content: str = "done") -> Step:
    with work.step(name) as step:
        if not step.is_done:
            (step.folder / "sub").mkdir()
            (step.folder / "sub" / "file").write_text(content)
            step.values = {"count": 3}
    return step


def end(root: Path, error: BaseException, key: str | None = "key", *, progress: bool = True) -> bool:
    """Ends a build by an error; whether it says that its work is kept."""
    with pytest.raises((type(error), BuildError)), opened(root, key) as work:
        if progress:
            make(work)
        raise error
    return (root / ".work").exists()


def test_a_step_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    end(tmp_path, OSError(28, "No space left on device"))
    with opened(tmp_path) as work:
        step = make(work, content="other")
        assert (step.is_done, step.values["count"]) == (True, 3)
        assert (step.folder / "sub" / "file").read_text() == "done"
    assert not list(tmp_path.iterdir())


def test_a_step_that_raised_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as work:
        with pytest.raises(ValueError, match="mine"), work.step("read") as step:
            (step.folder / "file").write_text("half")
            raise ValueError("mine")
        assert not make(work).is_done
        assert not (work.path / "read" / "file").exists()


@pytest.mark.parametrize("damage", ["changed", "gone", "more", "unmarked"])
def test_a_step_that_is_not_as_it_was_is_done_again(tmp_path: Path, damage: str) -> None:
    with opened(tmp_path) as work:
        file = make(work).folder / "sub" / "file"
        match damage:
            case "changed":
                file.write_text("none")
            case "gone":
                file.unlink()
            case "more":
                file.with_name("other").write_text("")
            case "unmarked":
                (work.path / "read" / "step.json").write_text("{")
        assert not make(work).is_done
        assert make(work).is_done


def test_links_are_told_from_what_is_no_part_of_the_step(tmp_path: Path) -> None:
    with opened(tmp_path) as work:
        step = make(work)
        assert step.link(tmp_path / "all") == step.files
        assert set(step.files) == {"sub/file"}
        assert step.link(tmp_path / "none", "other") == {}
        assert (tmp_path / "all" / "sub" / "file").samefile(step.folder / "sub" / "file")


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (KeyboardInterrupt(), True),
        (OSError(28, "No space left on device"), True),
        (sqlite3.OperationalError("database or disk is full"), True),
        (BusyError("later"), True),
        (InputError("never"), False),
        (BuildError("too many rejects"), False),
    ],
)
def test_work_is_kept_where_the_same_command_may_go_on(
    tmp_path: Path, error: BaseException, is_kept: bool
) -> None:
    assert end(tmp_path, error) is is_kept


def test_a_build_error_of_the_disk_may_pass(tmp_path: Path) -> None:
    error = BuildError("cannot write")
    error.__cause__ = OSError(28, "No space left on device")
    assert end(tmp_path, error)


def test_work_without_progress_or_of_a_pipe_is_not_kept(tmp_path: Path) -> None:
    assert not end(tmp_path, KeyboardInterrupt(), progress=False)
    assert not end(tmp_path, KeyboardInterrupt(), key=None)


def test_the_same_build_runs_once_at_a_time_and_others_beside_it(tmp_path: Path) -> None:
    with opened(tmp_path) as work:
        make(work)
        already = r"this build runs already: .*key is being changed by process"
        with pytest.raises(BusyError, match=already), opened(tmp_path):
            pass
        with opened(tmp_path, "other"), opened(tmp_path, None):
            pass
        assert make(work).is_done


def test_a_build_that_shall_not_resume_starts_afresh(tmp_path: Path) -> None:
    end(tmp_path, KeyboardInterrupt())
    with opened(tmp_path, resume=False) as work:
        assert not make(work).is_done


def test_what_a_killed_build_of_a_pipe_left_is_cleared(tmp_path: Path) -> None:
    left = tmp_path / ".work" / "once-012345"
    left.mkdir(parents=True)
    with opened(tmp_path):
        assert not left.exists()


def test_ends_without_a_word_are_counted(tmp_path: Path) -> None:
    with opened(tmp_path) as work:
        make(work)
        (work.path / ".encode-kills").write_bytes(b"xx")
        with pytest.raises(ValueError, match="mine"), work.counting_kills("encode") as kills:
            assert (kills, (work.path / ".encode-kills").read_bytes()) == (2, b"xxx")
            raise ValueError("mine")
        with work.counting_kills("encode") as kills:
            assert kills == 2
        with work.counting_kills("encode") as kills:
            assert kills == 0


LIVE = {"gc": {"v3"}, "rollback": {"v3", "v2"}, "publish": {"v3", "v4"}, "pin": {"v3"}, "amend": {"v3"}}
"""Command -> what may be live after its death."""
POINTS = 6
"""Kill points of each command; the crash matrix of benchmarks/lifecycle has them all."""


def test_a_kill_at_any_step_leaves_whole_versions_and_the_command_can_run_again(tmp_path: Path) -> None:
    done = python("-m", "tests.index_builder.kill_versions", tmp_path, 0, POINTS)
    assert done.returncode == 0, done.stderr
    states = json.loads(done.stdout)
    assert {state["command"] for state in states} == set(LIVE)
    assert len(states) >= 20
    for state in states:
        assert state["code"] == DEATH, state
        assert state["live"] in LIVE[state["command"]] and not state["damaged"], state
        # A rollback that was done before its death finds nothing to go back to.
        done_before = state["command"] == "rollback" and state["live"] == "v2"
        assert state["again"] == (1 if done_before else 0), (state, done.stderr)
        root = IndexRoot(Path(state["root"]))
        for version in root.versions():
            verify(root.folder(version), "index")
        check_end(root, state["command"])


def check_end(root: IndexRoot, command: str) -> None:
    """What holds once the command came to its end, however often it died."""
    ends = {
        "gc": lambda: root.versions() == ["v2", "v3"],
        "rollback": lambda: root.current() == "v2",
        "publish": lambda: (root.current(), root.history()) == ("v4", ["v3", "v2"]),
        "pin": lambda: root.pinned() == ["v1"],
        "amend": lambda: root.manifest("v4").parameters == {"gate": {"status": "passed"}},
    }
    assert ends[command](), (command, root.path)
    collect(root, 9)
    left = [path.name for path in root.path.iterdir() if path.name.startswith(".")]
    assert left == [".lock"], (command, left)
