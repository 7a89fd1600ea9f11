"""What many tests share: the toy model, the toy corpus, a published toy index, and the real data where it is."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.children import children_end

# A busy machine stops any example for a moment; tests that are about time measure it themselves. In CI the examples are
# the same each time: a change is judged by what it changes. Everywhere else they are new ones.
settings.register_profile("glow", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("glow")

# Before torch or faiss is loaded: tests share few cores, and threads that wait by spinning starve each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"


STORES = "tests/stores/"
"""A machine runs one Milvus server at a time, and Ray starts slowly: two processes with a file each would wait for one another."""


class _OneForStores(LoadFileScheduling):
    """`--dist=loadfile`, and all files that start the server in one process."""

    def _split_scope(self, nodeid: str) -> str:
        return STORES if nodeid.startswith(STORES) else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """How files are shared among processes; None: as the option says."""
    return _OneForStores(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need real collections can be named where those are absent (`make test`); those that wait for a server begin first.

    They are all in one process, and at the end the other one would have nothing to do.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(STORES))
    for item in items:
        if item.nodeid.startswith(STORES):
            item.add_marker(pytest.mark.servers)
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.data)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no collection of garbage need walk all of it again."""
    gc.collect()
    gc.freeze()
    # A service that loads an index thaws all of it, collects and freezes: a second, for every test that starts one.
    for name in ("freeze", "unfreeze"):
        setattr(gc, name, lambda: None)


@pytest.fixture(scope="session", autouse=True)
def no_child_is_left() -> Iterator[None]:
    """Made before every other fixture, so it ends last: no process may outlive the tests that started it."""
    with children_end():
        yield


@pytest.fixture(scope="session")
def toy_model() -> Path:
    """Folder of the toy model (tests/make_toy.py)."""
    return DATA / "toy-model"


@pytest.fixture(scope="session")
def toy_reranker() -> Path:
    """Folder of the toy re-ranker (tests/make_toy.py)."""
    return DATA / "toy-reranker"


@pytest.fixture(scope="session")
def learned_model(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Path:
    """A copy of the toy model with an untrained head of learned impacts: words near each other in the towers' space count."""
    from tests.learned_head import add_untrained_head

    folder = tmp_path_factory.mktemp("models") / "toy-learned"
    shutil.copytree(toy_model, folder)
    add_untrained_head(folder, folder.parent / "checkpoint")
    return folder


@pytest.fixture(scope="session")
def learned_index(tmp_path_factory: pytest.TempPathFactory, learned_model: Path, toy_corpus: Path) -> Path:
    """As `toy_index`, with learned impacts."""
    root = tmp_path_factory.mktemp("index") / "learned"
    command = [
        sys.executable,
        "-m",
        "glow",
        "build",
        "--threads",
        "1",
        "--learned-sparse",
        "--expansion-terms",
        "30",
    ]
    files = ["--model", str(learned_model), "--input", str(toy_corpus), "--index-root", str(root)]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="session")
def toy_corpus() -> Path:
    """Fifty small documents."""
    return DATA / "toy-corpus.jsonl"


@pytest.fixture(scope="session")
def toy_index(tmp_path_factory: pytest.TempPathFactory, toy_model: Path, toy_corpus: Path) -> Path:
    """An index root with one published version, built by the command that users run; never change it."""
    root = tmp_path_factory.mktemp("index") / "toy"
    command = [sys.executable, "-m", "glow", "build", "--threads", "1"]
    files = ["--model", str(toy_model), "--input", str(toy_corpus), "--index-root", str(root)]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="session")
def rerank_index(
    tmp_path_factory: pytest.TempPathFactory, toy_model: Path, toy_reranker: Path, toy_corpus: Path
) -> Path:
    """As `toy_index`, with term representations of the toy re-ranker."""
    root = tmp_path_factory.mktemp("index") / "rerank"
    command = [sys.executable, "-m", "glow", "build", "--threads", "1", "--rerank", str(toy_reranker)]
    files = ["--model", str(toy_model), "--input", str(toy_corpus), "--index-root", str(root)]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real collections (`GLOW_DATA`); tests that need it say so where it is absent."""
    folder = Path(os.environ.get("GLOW_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real collections at {folder}; set GLOW_DATA to a folder that holds them")
    return folder
