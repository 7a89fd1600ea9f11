"""What `make test` leaves out is named: also the tests that need real collections, on a machine without them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_tests_that_need_real_collections_are_known_by_their_mark() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "data",
        "tests/service",
        "tests/evaluation",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    named = [line for line in done.stdout.splitlines() if "::" in line]
    assert any("test_batcher.py::test_a_vector_of_the_default_model" in line for line in named)
    assert any("test_lexical.py::test_the_baseline_reproduces" in line for line in named)
    assert not any("test_contract" in line for line in named)


def test_make_names_them_where_the_folder_is_absent(tmp_path: Path) -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$$", "$").replace("\\\n", "")
    line = next(line for line in recipe.splitlines() if "GLOW_DATA" in line and "test -d" in line)
    shown = line.strip().lstrip("@").replace("$(BIN)/python -m pytest", "echo x::pytest")
    for folder, is_named in ((tmp_path, False), (tmp_path / "absent", True)):
        environment = {**os.environ, "GLOW_DATA": str(folder)}
        done = subprocess.run(
            ["sh", "-c", shown], env=environment, capture_output=True, text=True, check=True
        )
        assert ("x::pytest --collect-only -q -m data" in done.stdout) == is_named, done.stdout
