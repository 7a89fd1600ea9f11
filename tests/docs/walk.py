"""Runs the `console` blocks of a page of the documentation, and compares what they print with what the page shows.

A line that begins with `$ ` is a command, `> ` continues it, and the others are its output; `...` matches anything. A
command ends well unless its output shows an error of `glow`. All commands of a page run in one shell, in a copy of
docs/examples; port 8080 becomes a free one.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Step", "faults_of", "steps_of"]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
MARK = "== end of step"
LIMIT_S = 240.0


@dataclass(frozen=True)
class Step:
    """A command and the output that the page shows for it."""

    command: str
    output: str

    def fault(self, printed: str, code: int) -> str:
        """What differs; empty if nothing does."""
        pattern = r".*?".join(map(re.escape, _tidy(self.output).split("...")))
        is_refusal = any(line.startswith("glow: ") for line in self.output.splitlines())
        if bool(code) is is_refusal and re.fullmatch(pattern, _tidy(printed), re.DOTALL):
            return ""
        return f"$ {self.command}\n-- the page shows:\n{self.output}-- printed, exit {code}:\n{printed}"


def steps_of(page: str) -> list[Step]:
    """The commands of a page, in its order."""
    steps: list[Step] = []
    for line in "".join(BLOCK.findall(page)).splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], ""))
        elif line.startswith("> ") and steps and not steps[-1].output:
            steps[-1] = Step(f"{steps[-1].command}\n{line[2:]}", "")
        else:
            steps[-1] = Step(steps[-1].command, f"{steps[-1].output}{line}\n")
    return steps


def faults_of(page: str, folder: Path, port: int) -> list[str]:
    """Runs a page's commands.

    Args:
        page: its text.
        folder: an empty one to run them in.
        port: stands for 8080.

    Returns:
        What differs, a text a command.
    """
    page = page.replace("8080", str(port))
    steps = steps_of(page)
    shutil.copytree(ROOT / "docs" / "examples", folder, dirs_exist_ok=True)
    script = "".join(f'{step.command}\necho "{MARK} $?"\n' for step in steps)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GLOW_")}
    environment = {**kept, "PATH": path, "COLUMNS": "100", "GLOW_PORT": str(port)}
    with (folder / "printed").open("w+") as printed:
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
        try:
            process.wait(LIMIT_S)
        finally:
            with suppress(ProcessLookupError):  # nothing was left in the background
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        parts = re.split(rf"{MARK} (\d+)\n", printed.read())
    outputs = zip(parts[0::2], map(int, parts[1::2]), strict=False)
    return [
        fault for step, (text, code) in zip(steps, outputs, strict=True) if (fault := step.fault(text, code))
    ]


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
