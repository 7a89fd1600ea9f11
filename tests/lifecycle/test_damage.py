"""No damage to a file of a model or an index goes unseen, and none kills the process."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_fifty_seeded_damages_are_each_refused_by_the_name_of_the_file(
    rerank_index: Path, toy_model: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.lifecycle.damage",
        "--index-root",
        str(rerank_index),
        "--model",
        str(toy_model),
    ]
    done = subprocess.run(
        [*command, "--count", "50", "--seed", "7"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["damages"] == 50 and report["files"] > 20
