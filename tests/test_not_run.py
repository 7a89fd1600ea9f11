"""What `make test` leaves out is named: also the tests that need real collections, on a machine without them."""

import os
import subprocess
from pathlib import Path

from tests.program import ROOT, python


def test_tests_that_need_real_collections_are_known_by_their_mark() -> None:
    listed = python(
        "-m", "pytest", "--collect-only", "-q", "-m", "data", "tests/scripts/test_convert.py"
    ).stdout
    assert "test_fields_are_those_of_the_collection_at_hand" in listed
    assert "test_a_page_becomes_its_fields" not in listed


def test_make_names_them_where_the_folder_is_absent(tmp_path: Path) -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$$", "$").replace("\\\n", "")
    line = next(line for line in recipe.splitlines() if "GLOW_DATA" in line and "test -d" in line)
    shown = line.strip().lstrip("@").replace("$(BIN)/python -m pytest", "echo x::pytest")
    for folder, is_named in ((tmp_path, False), (tmp_path / "absent", True)):
        environment = {**os.environ, "GLOW_DATA": str(folder)}
        printed = subprocess.check_output(["sh", "-c", shown], env=environment, text=True)
        assert ("x::pytest --collect-only -q -m data" in printed) == is_named, printed
