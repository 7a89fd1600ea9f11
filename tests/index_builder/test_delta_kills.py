"""A delta command that is killed at any step leaves the old version or the new one live, and can be run again."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KILL = Path(__file__).with_name("delta_kill_points.py")


def test_a_kill_at_any_step_leaves_the_old_version_or_the_new_one(
    toy_index: Path, toy_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.jsonl").write_text(
        '{"_id": "toy/0", "text": "other"}\n{"_id": "a/new", "text": "one"}\n'
    )
    (tmp_path / "ids").write_text("toy/1\na/new\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(KILL), str(toy_index), str(toy_model), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    states = json.loads(done.stdout)
    assert {state["command"] for state in states} == {"upsert", "delete", "compact"} and len(states) >= 18
    olds = news = 0
    for state in states:
        assert state["died"], state["moment"]
        found, before, after = state["found"], state["before"], state["after"]
        is_old = found["version"] == before["version"]
        expected = before if is_old else after
        assert (found["ids"], found["has_delta"]) == (expected["ids"], expected["has_delta"]), state["moment"]
        olds, news = olds + is_old, news + (not is_old)
        if again := state["again"]:
            assert (again["ids"], again["has_delta"]) == (after["ids"], after["has_delta"])
    assert olds > 9 and news >= 3
