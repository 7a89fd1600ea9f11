"""Programs in processes of their own, run from the folder of the repository."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def python(*arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    given = {"cwd": ROOT, "capture_output": True, "text": True, "check": False, "timeout": 900, **options}
    return subprocess.run([sys.executable, *map(str, arguments)], **given)


def glow(*arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    return python("-m", "glow", *arguments, **options)


def answer_of(*arguments: object, **options: Any) -> Any:
    """The JSON that a program of the tests writes, which must succeed."""
    done = python("-m", *arguments, **options)
    assert done.returncode == 0, (done.returncode, done.stdout[-2_000:], done.stderr[-2_000:])
    return json.loads(done.stdout)
