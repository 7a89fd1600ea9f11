"""Help and completion of every command need no package of an extra."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glow.cli import HELP_WIDTH, VERBS, OfflineCommand, app, help_texts


@pytest.mark.parametrize("name", VERBS)
def test_the_kept_help_is_what_the_command_says(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"], prog_name="glow", terminal_width=HELP_WIDTH)
    assert done.output == help_texts()[name], "run: python -m scripts.reference"
    assert OfflineCommand(name, lambda: None).params


def test_a_shell_completes_commands_and_flags_and_imports_nothing_for_it() -> None:
    assert completed("glow com") == ["compact", "compare"]
    assert completed("glow train --dev") == ["--dev", "--dev-candidates", "--device"]
    assert "--no-publish" in completed("glow build --no")


def completed(line: str) -> list[str]:
    code = "import sys; sys.modules['numpy'] = sys.modules['torch'] = None; from glow.cli import main; main()"
    asked = {"_GLOW_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def test_the_nearest_name_of_a_command_is_suggested() -> None:
    done = CliRunner().invoke(app, ["biuld"])
    assert done.exit_code == 2 and "No such command 'biuld'. Did you mean 'build'?" in done.output
    near = CliRunner().invoke(app, ["build", "--inptu", "x"])
    assert near.exit_code == 2 and "--input" in near.output
