"""Plants each fault of `faults.toml` in a copy of the checkout and runs the tests that must notice it.

python -m research mutants [--subject PreTTR] [--out runs/mutants.jsonl]

Prints the share of faults that were caught, by subject, and every fault that survived. With `--out`, a stopped run
can be resumed.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Annotated, NamedTuple

import typer

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).with_name("faults.toml")
LEFT_OUT = (".git", ".venv", "runs", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")
LONGEST_S = 600.0
FAILED = 1
"""pytest's status if tests failed; others mean that they could not run."""
app = typer.Typer(add_completion=False)


class Fault(NamedTuple):
    """A planted fault.

    Attributes:
        subject: what the code implements.
        name: the fault.
        path: the file, from the top of the checkout.
        old, new: what stands there once, and what replaces it; `old` is "" for no fault.
        tests: files and directories of which one test must fail.
    """

    subject: str
    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def key(self) -> str:
        """Distinguishes it from the others."""
        return f"{self.path}: {self.name}"


def faults() -> Iterator[Fault]:
    """All faults of `faults.toml`."""
    for each in tomllib.loads(FAULTS.read_text(encoding="utf-8"))["file"]:
        for name, old, new in each["faults"]:
            yield Fault(each["subject"], name, each["path"], old, new, tuple(each["tests"]))


@app.command("mutants")
def main(
    subject: Annotated[str, typer.Option(help="Only faults of this subject.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Copies that are tested at the same time.")] = 2,
    out: Annotated[Path | None, typer.Option(help="JSON lines of the results; those there are kept.")] = None,
) -> None:
    """Plants every fault; exits with status 1 if one survives."""
    chosen = [fault for fault in faults() if subject in ("", fault.subject)]
    known = dict(_read(out)) if out else {}
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        copies: Queue[Path] = Queue()
        for number in range(jobs):
            copies.put(_copy(Path(scratch) / str(number)))
        sound = {fault.tests: fault._replace(old="", new="") for fault in chosen if fault.key not in known}
        for fault, failed in zip(
            sound.values(), pool.map(lambda each: _run(copies, each), sound.values()), strict=True
        ):
            if failed:
                raise typer.BadParameter(f"without a fault, one of {', '.join(fault.tests)} fails")
        missing = [fault for fault in chosen if fault.key not in known]
        for fault, caught in zip(missing, pool.map(lambda each: _run(copies, each), missing), strict=True):
            known[fault.key] = caught
            typer.echo(f"{'caught' if caught else 'SURVIVED'}  {fault.subject}: {fault.name}", err=True)
            if out:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"fault": fault.key, "caught": caught}) + "\n")
    _tell(chosen, known)
    if not all(known[fault.key] for fault in chosen):
        raise typer.Exit(1)


def _read(out: Path) -> Iterator[tuple[str, bool]]:
    for line in out.read_text(encoding="utf-8").splitlines() if out.exists() else ():
        found = json.loads(line)
        yield found["fault"], found["caught"]


def _copy(folder: Path) -> Path:
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return folder


def _run(copies: "Queue[Path]", fault: Fault) -> bool:
    """Whether a test fails with this fault; blocks until a copy is free."""
    folder = copies.get()
    file = folder / fault.path
    text = file.read_text(encoding="utf-8")
    try:
        if fault.old:
            if text.count(fault.old) != 1:
                raise typer.BadParameter(f"{fault.key}: found {text.count(fault.old)} times, expected once")
            file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        return _fails(folder, fault.tests)
    finally:
        file.write_text(text, encoding="utf-8")
        copies.put(folder)


def _fails(folder: Path, tests: Sequence[str]) -> bool:
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow"]
    environment = os.environ | {"PYTHONPATH": f"{folder}:{folder / '.rooms'}"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True  # a fault after which nothing ends is noticed, too
    if done.returncode not in (0, FAILED):
        raise typer.BadParameter(f"the tests did not run: {done.stdout.decode()[-2_000:]}")
    return done.returncode == FAILED


def _tell(chosen: Sequence[Fault], known: dict[str, bool]) -> None:
    typer.echo("|subject|faults|caught|\n|---|---|---|")
    for subject in dict.fromkeys(fault.subject for fault in chosen):
        own = [known[fault.key] for fault in chosen if fault.subject == subject]
        typer.echo(f"|{subject}|{len(own)}|{sum(own)}|")
    caught = sum(known[fault.key] for fault in chosen)
    typer.echo(f"|all|{len(chosen)}|{caught} ({caught / len(chosen):.0%})|")
    for fault in chosen:
        if not known[fault.key]:
            typer.echo(f"survived: {fault.key}")


if __name__ == "__main__":
    app()
