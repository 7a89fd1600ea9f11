"""What tests of writes share: made documents, a root for each test, and commands beside a service."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glow.artifact import IndexRoot
from glow.index.stored_fields import STORED_FIELDS
from tests.made_index import documents, made, opened, write
from tests.program import ROOT

MakeRoot = Callable[[int], IndexRoot]


@pytest.fixture
def root_of(toy_model: Path, tmp_path: Path) -> MakeRoot:
    """A root with so many made documents, d/0 and on."""
    return lambda count: made_root(toy_model, tmp_path, count)


def made_root(model: Path, folder: Path, count: int) -> IndexRoot:
    return made(model, write(folder / "first.jsonl", documents(count)), folder / "index", index="flat")


def held(root: IndexRoot) -> dict[str, str]:
    """Id -> text of every document that can be found."""
    return {each.id: each.fields["text"][0] for each in opened(root)[STORED_FIELDS].scan()}


def start_ingest(root: IndexRoot, model: Path, *options: str) -> "subprocess.Popen[bytes]":
    """`glow ingest` beside the test."""
    command = [sys.executable, "-m", "glow", "ingest", "--index-root", str(root.path), "--model", str(model)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*command, *options], cwd=ROOT, **silent)  # type: ignore[call-overload,no-any-return]


@contextmanager
def holding(code: str, folder: Path) -> Iterator[None]:
    """A process that holds what the context manager `code` takes, over a folder; killed at the end."""
    lines = (
        "import sys, time\nfrom pathlib import Path\nfrom glow.artifact import *\nfrom glow.ingest import *\n"
    )
    lines += f"with {code}:\n print('held', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", lines, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        yield
        other.kill()
