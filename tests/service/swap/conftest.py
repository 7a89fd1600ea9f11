"""An index root with as many versions as a test wants, and services that follow it."""

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from glow.artifact import MANIFEST_FILE, IndexRoot, read_manifest
from glow.artifact.manifest import FileRecord
from glow.cli import app as glow_app
from glow_service.app import create_app
from glow_service.settings import Settings
from glow_service.state import Service
from tests.service.asking import samples

ADMIN_KEY = "admin-key-of-the-test"
ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
"""Headers with the admin key."""
IDS = {"a": "toy/", "b": "other/"}
"""How the ids of a kind of version begin."""
ADMIN_HASH = hashlib.sha256(ADMIN_KEY.encode()).hexdigest()


@dataclass(frozen=True)
class Versions:
    """An index root whose versions are copies of two: `a` is the toy corpus, `b` the same texts under other ids."""

    path: Path
    makers: dict[str, Path]

    def add(self, name: str) -> Path:
        """Makes a version of the kind that its name begins with, such as `b2`; returns its folder."""
        folder = Path(shutil.copytree(self.makers[name[0]], self.path / name))
        manifest = read_manifest(folder, "index").model_copy(update={"name": name})
        (folder / MANIFEST_FILE).write_bytes(manifest.to_bytes())
        return folder

    def add_of_another_model(self, name: str) -> Path:
        """As `add`, of a model that differs by a blank in one of its files."""
        folder = self.add(name)
        path = folder / "model" / "weighting.json"
        path.write_bytes(path.read_bytes() + b" ")
        digest, manifest = hashlib.sha256(path.read_bytes()).hexdigest(), read_manifest(folder, "index")
        model = manifest.parents["model"]
        parents = {"model": {**model, "files": {**model["files"], path.name: digest}}}
        record = FileRecord(size_bytes=path.stat().st_size, sha256=digest)
        files = {**manifest.files, f"model/{path.name}": record}
        manifest = manifest.model_copy(update={"parents": parents, "files": files})
        (folder / MANIFEST_FILE).write_bytes(manifest.to_bytes())
        return folder

    def publish(self, name: str) -> None:
        """Makes a version the live one; it is made where it is not there."""
        if not (self.path / name).is_dir():
            self.add(name)
        IndexRoot(self.path).publish(name)

    def point(self, name: str) -> None:
        """Has CURRENT name a version that `publish` would refuse."""
        temporary = self.path / ".CURRENT-of-the-test"
        temporary.write_text(f"{name}\n", encoding="utf-8")
        temporary.replace(self.path / "CURRENT")


@dataclass(frozen=True)
class Served:
    """A service in a thread of the test's process, and a client of it."""

    http: httpx.Client
    service: Service

    @property
    def live(self) -> str:
        return self.service.resources.live().version

    def search(self, text: str = "honey bees", **fields: Any) -> httpx.Response:
        return self.http.post("/search", json={"query": text, **fields})

    def metric(self, name: str) -> float:
        """A metric's value by its name with labels; 0 where it is not there."""
        return samples(self.http).get(name, 0.0)

    def admin(self, action: str, **body: Any) -> httpx.Response:
        """Asks for a reload or a rollback with the admin key."""
        return self.http.post(f"/admin/{action}", headers=ADMIN, json=body or None)


Serve = Callable[..., AbstractContextManager[Served]]


class Client(threading.Thread):
    """Searches, alone and in batches, until `enough` is set; connects again after a lost connection."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.enough = url, threading.Event()
        self.faults, self.versions, self.lost = list[str](), list[str](), 0

    def run(self) -> None:
        while not self.enough.is_set():
            try:
                with httpx.Client(base_url=self.url, timeout=30) as http:
                    while not self.enough.is_set():
                        self.search(http)
            except httpx.TransportError:
                self.lost += 1

    def search(self, http: httpx.Client) -> None:
        """Sends a search and a batch; every hit must be of the version that is named."""
        number = len(self.versions)
        query = {"query": f"honey bees {number}", "retriever": ("dense", "hybrid")[number % 2]}
        alone = http.post("/search", json=query)
        batch = http.post("/search/batch", json={"searches": [query, {"query": "salmon"}]})
        for response in (alone, batch):
            if response.status_code != 200:
                self.faults.append(response.text)
                return
            version = response.headers["x-index-version"]
            answers = response.json().get("results", [response.json()])
            if {answer["index"]["version"] for answer in answers} != {version}:
                self.faults.append("another version in the header")
            ids = [hit["id"] for answer in answers for hit in answer["hits"]]
            if not ids or not all(each.startswith(IDS[version[0]]) for each in ids):
                self.faults.append(f"hits of another version than {version}")
            self.versions.append(version)


@contextmanager
def searching(url: str, count: int) -> Iterator[list[Client]]:
    """So many clients; none has a fault at the end."""
    clients = [Client(url) for _ in range(count)]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.enough.set()
            client.join()
    assert [client.faults for client in clients] == [[]] * count


@pytest.fixture(scope="session")
def version_makers(
    toy_index: Path, toy_model: Path, toy_corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Kind of version -> a version's folder; of `a` every id begins with `toy/`, of `b` with `other/`."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "corpus.jsonl").write_bytes(toy_corpus.read_bytes().replace(b'"_id": "toy/', b'"_id": "other/'))
    places = ["--model", toy_model, "--input", folder / "corpus.jsonl", "--index-root", folder / "root"]
    done = CliRunner().invoke(glow_app, ["build", "--threads", "1", *map(str, places)])
    assert done.exit_code == 0, done.output
    roots = {"a": IndexRoot(toy_index), "b": IndexRoot(folder / "root")}
    return {kind: root.folder(root.current()) for kind, root in roots.items()}


@pytest.fixture
def versions(tmp_path: Path, version_makers: dict[str, Path]) -> Versions:
    """An index root with the live version `a1`."""
    (tmp_path / "root").mkdir()
    made = Versions(tmp_path / "root", version_makers)
    made.publish("a1")
    return made


@pytest.fixture
def serve(versions: Versions, serve_app: Any, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Serves the versions with more settings; `poll_s` is the interval of looks. Ready when the block begins."""
    monkeypatch.setattr("glow_service.live.resources.WARMUP_QUERIES", 1)

    @contextmanager
    def started(poll_s: float = 0.02, **values: Any) -> Iterator[Served]:
        monkeypatch.setattr("glow_service.live.swap.POLL_S", poll_s)
        settings = {"default_timeout_ms": 30_000, "admin_key": ADMIN_HASH, **values}
        app = create_app(Settings(index_root=versions.path, **settings), on_failure=lambda: None)
        with serve_app(app) as http:
            yield Served(http, app.state.service)

    return started
