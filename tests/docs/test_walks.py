"""Every command that a page of the documentation shows with its output runs, and prints that; and its Python runs.

In a `console` block, a line that begins with `$ ` is a command, `> ` continues it, and the others are its output; `...` matches
anything. A command ends well unless its output shows an error of `glow`. All commands of a page run in one shell, in a copy of
docs/examples; port 8080 becomes a free one.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.forks import FUNCTION
from tests.ports import free_port
from tests.program import ROOT, python
from tests.until import until

PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md"))}
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
MARK = "== end of step"
LIMIT_S = 240.0


def tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@dataclass(frozen=True)
class Step:
    """A command and the output that the page shows for it."""

    command: str
    output: str

    def fault(self, printed: str, code: int) -> str:
        """What differs; empty if nothing does."""
        pattern = r".*?".join(map(re.escape, tidy(self.output).split("...")))
        is_refusal = any(line.startswith("glow: ") for line in self.output.splitlines())
        if bool(code) is is_refusal and re.fullmatch(pattern, tidy(printed), re.DOTALL):
            return ""
        return f"$ {self.command}\n-- the page shows:\n{self.output}-- printed, exit {code}:\n{printed}"


def steps_of(page: str) -> list[Step]:
    steps: list[Step] = []
    for line in "".join(BLOCK.findall(page)).splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:], ""))
        elif line.startswith("> ") and steps and not steps[-1].output:
            steps[-1] = Step(f"{steps[-1].command}\n{line[2:]}", "")
        else:
            steps[-1] = Step(steps[-1].command, f"{steps[-1].output}{line}\n")
    return steps


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a `tests.docs.forks`."""
    folder = tmp_path_factory.mktemp("forks")
    process = subprocess.Popen([sys.executable, "-m", "tests.docs.forks", str(folder)], cwd=ROOT)
    until(lambda: (folder / "request").exists())
    yield folder
    process.kill()
    process.wait()


def faults_of(page: str, folder: Path, forks: Path) -> list[str]:
    """Runs a page's commands in an empty folder; what differs, a text a command."""
    port = free_port()
    steps = steps_of(page.replace("8080", str(port)))
    shutil.copytree(ROOT / "docs" / "examples", folder, dirs_exist_ok=True)
    script = "".join(f'{step.command}\necho "{MARK} $?"\n' for step in steps)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GLOW_")}
    environment = {**kept, "PATH": path, "COLUMNS": "100", "GLOW_PORT": str(port), "FORKS": str(forks)}
    with (folder / "printed").open("a+") as printed:
        process = subprocess.Popen(
            ["bash", "-c", FUNCTION + script],
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


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if steps_of(page)])
def test_a_page_prints_what_it_shows(name: str, tmp_path: Path, forks: Path) -> None:
    faults = faults_of(PAGES[name], tmp_path, forks)
    assert not faults, "\n" + "\n".join(faults)


def test_what_a_page_shows_can_be_wrong() -> None:
    assert not Step("x", "a...c\n").fault("abc\n", 0)
    assert Step("x", "a\n").fault("b\n", 0) and Step("x", "a\n").fault("a\n", 1)
    refusal = Step("x", "glow: no\n")
    assert refusal.fault("glow: no\n", 0) and not refusal.fault("glow: no\n", 5)
    assert steps_of("```console\n$ a\n> b\nc\n$ d\n```\n") == [Step("a\nb", "c\n"), Step("d", "")]


PYTHON = re.compile(r"^## From Python\n\n.*?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_python_of_the_page_on_evaluation_runs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "examples", tmp_path, dirs_exist_ok=True)
    shutil.copy(tmp_path / "documents.jsonl", tmp_path / "questions" / "corpus.jsonl")
    (code,) = PYTHON.findall(PAGES["evaluation"])
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "test {'RR@10':" in done.stdout
