"""What many tests share: the toy model, the toy corpus, published toy indexes, and the real data where it is."""

import fcntl
import gc
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

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


MARK = "TEST_PROCESS_MARK"
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Of the interpreter's own; they end with the process that they serve."""
WITHIN_S = 12.0
"""A parser of pages that has nothing to do ends itself after 10 s."""


@pytest.fixture(scope="session", autouse=True)
def no_child_is_left() -> Iterator[None]:
    """Made before every other fixture, so it ends last: no process may outlive the tests that started it, whoever its parent is by then."""
    mark = os.environ[MARK] = uuid.uuid4().hex
    yield
    del os.environ[MARK]
    _, alive = psutil.wait_procs(list(_marked(mark)), WITHIN_S)  # what was told to end may be at it
    commands = [" ".join(_command(each)) for each in alive]
    for each in alive:
        each.kill()
    assert not commands, f"{len(commands)} processes outlived the tests that started them: {commands}"


def _marked(mark: str) -> Iterator[psutil.Process]:
    for each in psutil.process_iter():
        try:
            is_ours = each.pid != os.getpid() and each.environ().get(MARK) == mark
        except psutil.Error:  # gone meanwhile, or somebody else's
            continue
        if is_ours and not any(helper in " ".join(_command(each)) for helper in HELPERS):
            yield each


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return ["(gone)"]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`shared_folder(name, make)`: a folder that `make(folder)` makes once a run, for all test processes; never change it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder = base / name
        with (base / f"{name}.lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if lock.seek(0, os.SEEK_END) == 0:  # nobody has made it yet
                shutil.rmtree(folder, ignore_errors=True)
                make(folder)
                lock.write("made")
        return folder

    return made


@pytest.fixture(scope="session")
def toy_model() -> Path:
    """Folder of the toy model (tests/make_toy.py)."""
    return DATA / "toy-model"


@pytest.fixture(scope="session")
def toy_reranker() -> Path:
    """Folder of the toy re-ranker (tests/make_toy.py)."""
    return DATA / "toy-reranker"


@pytest.fixture(scope="session")
def toy_corpus() -> Path:
    """Fifty small documents."""
    return DATA / "toy-corpus.jsonl"


@pytest.fixture(scope="session")
def learned_model(shared_folder: Callable[..., Path], toy_model: Path) -> Path:
    """A copy of the toy model with an untrained head of learned impacts: words near each other in the towers' space count."""

    def make(folder: Path) -> None:
        from tests.learned_head import add_untrained_head

        shutil.copytree(toy_model, folder / "toy-learned")
        add_untrained_head(folder / "toy-learned", folder / "checkpoint")

    return shared_folder("learned", make) / "toy-learned"


@pytest.fixture(scope="session")
def toy_index(shared_folder: Callable[..., Path], toy_model: Path, toy_corpus: Path) -> Path:
    """An index root with one published version, of a build with default options."""
    return shared_folder("toy", lambda root: build_index(toy_model, toy_corpus, root))


@pytest.fixture(scope="session")
def learned_index(shared_folder: Callable[..., Path], learned_model: Path, toy_corpus: Path) -> Path:
    """As `toy_index`, with learned impacts."""
    more = {"learned": True, "learned_budget": 30}
    return shared_folder("learned-index", lambda root: build_index(learned_model, toy_corpus, root, **more))


@pytest.fixture(scope="session")
def rerank_index(
    shared_folder: Callable[..., Path], toy_model: Path, toy_reranker: Path, toy_corpus: Path
) -> Path:
    """As `toy_index`, with token embeddings of the toy re-ranker."""
    return shared_folder(
        "rerank-index", lambda root: build_index(toy_model, toy_corpus, root, rerank=toy_reranker)
    )


def build_index(model: Path, corpus: Path, root: Path, **options: Any) -> None:
    from glow_index_builder.building.builder import build
    from glow_index_builder.options import BuildOptions
    from tests.made_index import stages

    build(BuildOptions(model=model, source=str(corpus), index_root=root, threads=1, **options), stages())


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real collections (`GLOW_DATA`); tests that need it say so where it is absent."""
    folder = Path(os.environ.get("GLOW_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real collections at {folder}; set GLOW_DATA to a folder that holds them")
    return folder
