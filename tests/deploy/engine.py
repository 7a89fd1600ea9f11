"""The container engine as the check of `docker-compose.yml` uses it: one project of its own, from a fresh clone, and its clients."""

import itertools
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from scripts.pin_images import images
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
NAME = "glow-compose-up"
IMAGES = ("service", "builder", "proxy")
CLIENTS = 4
PAUSE_S = 0.02
TIMEOUT_S = 40.0
WORDS = ("directory", "socket", "thread", "date", "compress", "regular expression", "queue", "hash")


def run(*command: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command; its output is kept, whatever its exit status."""
    environment = os.environ | variables
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def engine_answers() -> bool:
    """Whether there is an engine, and compose v2."""
    asked = (("docker", "info"), ("docker", "compose", "version"))
    return shutil.which("docker") is not None and all(run(*command).returncode == 0 for command in asked)


def out_of_reach(images: tuple[str, ...]) -> list[str]:
    """Those of the images that are not here and cannot be pulled."""
    commands = (("docker", "image", "inspect"), ("docker", "pull", "--quiet"))
    return [image for image in images if all(run(*command, image).returncode for command in commands)]


def sizes_mb(image: str) -> tuple[float, float]:
    """Megabytes of an image, unpacked and as a gzipped archive."""
    unpacked = int(run("docker", "image", "inspect", "--format", "{{.Size}}", image).stdout)
    packed = run("bash", "-c", f"set -o pipefail; docker save {image} | gzip -6 | wc -c")
    if packed.returncode != 0 or not re.fullmatch(r"\d+\s*", packed.stdout):
        raise RuntimeError(f"{image} cannot be saved: {packed.stderr}")
    return unpacked / 1e6, int(packed.stdout) / 1e6


class Project:
    """A clone of HEAD, what compose makes of it, and the port where its proxy answers; the job finds `input` at /input."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix=NAME))
        self._place.chmod(0o755)  # the containers' user reads it, too
        self.folder, self.input, self.port = self._place / "glow", self._place / "input", free_port()
        self.input.mkdir(mode=0o755)
        done = run("git", "clone", "--quiet", str(ROOT), str(self.folder))
        if done.returncode != 0:
            raise RuntimeError(f"the checkout cannot be cloned: {done.stderr}")
        self._variables = {
            "COMPOSE_PROJECT_NAME": NAME,
            "PORT": str(self.port),
            "INPUT_FOLDER": str(self.input),
            # By their tags: what stands in for a base image here has no digest of a registry.
            **{name: image.partition("@")[0] for name, image in images().items()},
            **{f"{image.upper()}_IMAGE": self.image(image) for image in IMAGES},
        }

    def image(self, name: str) -> str:
        """The name of one of our images here, so that nobody's own is replaced."""
        return f"glow-{name}:compose-up"

    def compose(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run("docker", "compose", *arguments, folder=self.folder, **self._variables)

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return run("bash", "-c", line, folder=self.folder, **self._variables)

    def container(self, service: str) -> str:
        """The id of a service's container, running or not."""
        return self.compose("ps", "--all", "--quiet", service).stdout.strip()

    def inside(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        return run("docker", "exec", self.container(service), *command)

    def search(self, query: str, top_k: int = 5) -> httpx.Response:
        """Asks once, on a connection of its own."""
        with httpx.Client(timeout=TIMEOUT_S) as client:
            return self._search(client, query, top_k)

    def version(self) -> str:
        """The index version that answers a query that no cache knows."""
        return self.search(f"which version {time.time_ns()}").headers.get("x-index-version", "")

    def _search(self, client: httpx.Client, query: str, top_k: int) -> httpx.Response:
        body = {"query": query, "top_k": top_k, "timeout_ms": 30_000}
        return client.post(f"http://127.0.0.1:{self.port}/search", json=body)

    @contextmanager
    def load(self) -> Iterator["Load"]:
        """A few clients that search without pause while the block runs."""
        load, ended = Load(), threading.Event()

        def ask(place: int) -> None:
            with httpx.Client(timeout=TIMEOUT_S) as client:
                for number in itertools.count():
                    if ended.wait(PAUSE_S):
                        return
                    # Every query is another one, so that no cache answers in place of a replica.
                    query = f"{WORDS[number % len(WORDS)]} {place} {number}"
                    begin = time.monotonic()
                    try:
                        answer = self._search(client, query, 3)
                        fault = "" if answer.status_code == 200 else f"{answer.status_code}: {answer.text}"
                    except httpx.HTTPError as error:
                        fault = f"{type(error).__name__}: {error}"
                    load.note(time.monotonic() - begin, fault)

        with ThreadPoolExecutor(CLIENTS) as pool:
            asking = [pool.submit(ask, place) for place in range(CLIENTS)]
            try:
                yield load
            finally:
                ended.set()
                for each in asking:
                    each.result()

    def remove(self) -> None:
        """Removes containers, volumes and the clone; images stay, for the next time."""
        self.compose("--profile", "*", "down", "--volumes", "--remove-orphans")
        shutil.rmtree(self._place, ignore_errors=True)


@dataclass
class Load:
    """What clients got: answers with 200, and what they did not get; nothing is asked for twice."""

    answered: int = 0
    slowest_s: float = 0.0
    lost: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, seconds: float, fault: str) -> None:
        with self._lock:
            self.slowest_s = max(self.slowest_s, seconds)
            self.answered += not fault
            self.lost += [fault] if fault else []
