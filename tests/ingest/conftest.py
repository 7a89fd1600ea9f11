"""What tests of writes share: made documents, a root for each test, services that take writes, and commands beside them."""

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from glow.artifact import IndexRoot
from glow.index.stored_fields import STORED_FIELDS
from glow.ingest import INGEST_FOLDER
from glow_service.app import create_app
from glow_service.settings import Settings
from tests.made_index import documents, made, opened, write
from tests.program import ROOT
from tests.service.conftest import _serve_in_thread

MakeRoot = Callable[[int], IndexRoot]
KEY = "a-key-for-writing"
WRITE = {"X-API-Key": KEY}
KEY_HASH = hashlib.sha256(KEY.encode()).hexdigest()


def serving_writes(root: IndexRoot, **values: Any) -> AbstractContextManager[httpx.Client]:
    """Serves a root from a thread of the test's process, which takes writes unless told otherwise."""
    settings = {"default_timeout_ms": 30_000, "write_key": KEY_HASH, **values}
    return _serve_in_thread(create_app(Settings(index_root=root.path, **settings), on_failure=lambda: None))


def log_bytes(root: IndexRoot) -> int:
    return sum(path.stat().st_size for path in (root.path / INGEST_FOLDER / "log").glob("*.log"))


@pytest.fixture
def root_of(toy_model: Path, tmp_path: Path) -> MakeRoot:
    """A root with so many made documents, d/0 and on."""
    return lambda count: root_in(tmp_path, toy_model, count)


def root_in(folder: Path, model: Path, count: int, **options: Any) -> IndexRoot:
    source = write(folder / "first.jsonl", documents(count))
    return made(model, source, folder / "index", index="flat", **options)


def held(root: IndexRoot) -> dict[str, str]:
    return {each.id: each.fields["text"][0] for each in opened(root)[STORED_FIELDS].scan()}


def start_ingest(root: IndexRoot, model: Path, *options: str) -> "subprocess.Popen[bytes]":
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
