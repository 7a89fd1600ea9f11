"""A kill at any step of a command leaves whole versions, the old or the new one live, and the command can run again."""

import json
import subprocess
import sys
from pathlib import Path

from glow.artifact import IndexRoot, verify, write_artifact
from glow_index_builder.versions.gc import collect
from glow_index_builder.versions.snapshot import export_version

KILL = Path(__file__).with_name("kill_versions.py")
ROOT = Path(__file__).parents[2]
LIVE = {
    "gc": {"v3"},
    "rollback": {"v3", "v2"},
    "publish": {"v3", "v4"},
    "pin": {"v3"},
    "amend": {"v3"},
    "import": {"v3"},
}
"""Command -> what may be live after its death."""
DEATH = 77
POINTS = 6
"""Kill points of each command; the crash matrix of benchmarks/lifecycle has them all."""


def test_a_kill_at_any_step_leaves_whole_versions_and_the_command_can_run_again(tmp_path: Path) -> None:
    source = IndexRoot(tmp_path / "source")
    with write_artifact(source.path / "v9", "index") as writer:
        (writer.folder / "part").mkdir()
        (writer.folder / "part" / "vectors.bin").write_text("v9" * 100)
    with (tmp_path / "v9.tar").open("wb") as file:
        export_version(source, "v9", file)
    done = subprocess.run(
        [sys.executable, str(KILL), str(tmp_path), str(tmp_path / "v9.tar"), "0", str(POINTS)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
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
        "import": lambda: "v9" in root.versions(),
    }
    assert ends[command](), (command, root.path)
    collect(root, 9)
    left = [path.name for path in root.path.iterdir() if path.name.startswith(".")]
    assert left == [".lock"], (command, left)
