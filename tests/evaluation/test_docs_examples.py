"""The Python of docs/evaluation.md runs; its commands are run by tests/docs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = re.compile(r"^## From Python\n\n.*?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_python_runs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "examples", tmp_path, dirs_exist_ok=True)
    shutil.copy(tmp_path / "documents.jsonl", tmp_path / "questions" / "corpus.jsonl")
    found = PYTHON.search((ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8"))
    assert found is not None
    command = [sys.executable, "-c", found[1]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "test {'RR@10':" in done.stdout
