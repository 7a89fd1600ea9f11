"""A command that is killed leaves the old version live or the new one, and ends well when it is run again."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_twenty_seeded_kills_leave_old_or_new_and_nothing_between() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.lifecycle.crash", "--runs", "20", "--seed", "11"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["runs"] == 20 and set(report["live"]) == {"old", "new"}
    assert min(report["moments"].values()) > 3  # each command was watched at work
