"""The extracted documents, once for all tests of the demo."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

Documents = dict[str, dict[str, Any]]


def _run_python(arguments: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the Python of these tests from another folder, the repository on its path."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | environment
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python with the given arguments, working folder and environment."""
    return _run_python


@pytest.fixture(scope="session")
def extraction(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One run of the command to standard output, with a browser that would leave a trace."""
    folder = tmp_path_factory.mktemp("demo")
    browser = folder / "browser"
    browser.write_text(f"#!/bin/sh\ntouch {folder}/opened\n", encoding="utf-8")
    browser.chmod(0o755)
    result = _run_python(["-m", "glow_demo.python_docs"], folder, BROWSER=str(browser), PYTHONHASHSEED="1")
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["browser"], "the run left files behind"
    return result


@pytest.fixture(scope="session")
def documents(extraction: subprocess.CompletedProcess[str]) -> Documents:
    """The documents by title."""
    records = [json.loads(line) for line in extraction.stdout.splitlines()]
    return {record["title"]: record for record in records}
