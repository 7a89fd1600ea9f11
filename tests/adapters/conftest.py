"""A service that is written to, and stores with a namespace of their own in it."""

import hashlib
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from glow.adapters import GlowStore
from glow.artifact import default_model
from tests.attacks.harness import ROOT, serving
from tests.made_index import made, write

KEY = "a-key-for-writing"
FIRST = [
    {"_id": "bees", "title": "How bees find home", "url": "https://example.org/bees", "text": "Honey bees find home by the sun.", "lang": "en", "namespace": "docs"},
    {"_id": "owls", "title": "Owls", "text": "Owls hunt voles at night and sleep by day.", "lang": "en", "namespace": "docs"},
    {"_id": "loks", "title": "Dampfloks", "text": "A steam engine turns heat into motion.", "lang": "de", "namespace": "docs"},
]  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("adapters")
    root = made(default_model(), write(folder / "first.jsonl", FIRST), folder / "index", index="flat")
    flags = ("--write-key", hashlib.sha256(KEY.encode()).hexdigest(), "--workers", "1")
    command = [sys.executable, "-m", "glow", "ingest", "--index-root", str(root.path)]
    command += ["--poll-interval-s", "0.05"]
    with (
        serving(root.path, *flags) as running,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as ingest,
    ):
        yield running.url
        ingest.terminate()


@pytest.fixture
def new_store(service: str) -> Iterator[Callable[[], GlowStore]]:
    stores: list[GlowStore] = []

    def make() -> GlowStore:
        stores.append(GlowStore(service, write_key=KEY, namespace=uuid.uuid4().hex))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def documents(service: str) -> Iterator[GlowStore]:
    store = GlowStore(service, namespace="docs")
    yield store
    store.close()
