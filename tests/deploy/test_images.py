"""What an image holds is enough, and its scripts do what they say: run here in copies of what the Dockerfiles copy."""

import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from glow.artifact import IndexRoot

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"


def image_folder(name: str, target: Path) -> Path:
    """/app as a Dockerfile makes it."""
    text = (DOCKER / f"{name}.Dockerfile").read_text(encoding="utf-8")
    for sources, place in re.findall(r"(?m)^COPY ([^-\n]*) /app/(\w*)$", text):
        for source in sources.split():
            if place and source != "models":
                shutil.copytree(ROOT / source, target / place, ignore=shutil.ignore_patterns("__pycache__"))
            elif not place:
                shutil.copy2(ROOT / source, target)
    for removed in re.findall(r"/app/(\S+)", re.findall(r"RUN rm -rf ([^&\\]*)", text)[0]):
        shutil.rmtree(target / removed)
    return target


def in_image(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command as the image runs it, with only its own directory to import packages from."""
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": "/nonexistent"}
    environment |= {"ORT_DISABLE_TELEMETRY": "1", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= variables
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("service", "glow_service.commands.serve"),
        ("service", "glow_service.commands.search"),
        ("builder", "glow_index_builder.commands.build"),
        ("builder", "glow_model_export.imported"),
    ],
)
def test_what_an_image_holds_is_enough_to_start(tmp_path: Path, name: str, module: str) -> None:
    folder = image_folder(name, tmp_path)
    assert not (folder / "glow" / "nn").exists()
    # The editable install of this checkout must not lend what the image lacks.
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}];"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()];"
        f"import {module}, glow; assert glow.__file__.startswith({str(folder)!r})"
    )
    done = in_image(folder, "python", "-c", code)
    assert done.returncode == 0, done.stderr


def test_the_job_builds_publishes_and_removes_and_its_status_is_the_builds(
    tmp_path: Path, toy_model: Path, toy_corpus: Path
) -> None:
    root = tmp_path / "index"

    def rebuild(documents: Path, *options: str) -> subprocess.CompletedProcess[str]:
        command = ("sh", str(DOCKER / "rebuild.sh"), "--model", str(toy_model), "--input", str(documents))
        variables = {"INDEX_ROOT": str(root), "BUILD_THREADS": "1", "KEEP_VERSIONS": "1"}
        return in_image(ROOT, *command, *options, **variables)

    done = rebuild(toy_corpus)
    assert done.returncode == 0, done.stderr
    first = IndexRoot(root).current()
    assert rebuild(tmp_path / "nothing.jsonl").returncode == 2
    assert IndexRoot(root).current() == first
    done = rebuild(toy_corpus, "--passages")
    assert done.returncode == 0, done.stderr
    assert IndexRoot(root).current() != first
    assert not (root / str(first)).exists(), "one version was to be kept"


def test_the_sample_never_replaces_a_live_version(tmp_path: Path, toy_index: Path) -> None:
    before = (toy_index / "CURRENT").read_bytes()
    done = in_image(tmp_path, "sh", str(DOCKER / "sample.sh"), INDEX_ROOT=str(toy_index))
    assert done.returncode == 0, done.stderr
    assert before.split()[0].decode() in done.stdout
    assert (toy_index / "CURRENT").read_bytes() == before


@pytest.fixture
def answering() -> Callable[[int], int]:
    """Starts a server that gives every request one status; returns its port."""

    def start(status: int) -> int:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/readyz" else 500)
                self.end_headers()

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_port

    return start


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1)])
def test_the_health_check_follows_readyz(answering: Callable[[int], int], status: int, expected: int) -> None:
    done = in_image(DOCKER, "bash", str(DOCKER / "ready.sh"), GLOW_PORT=str(answering(status)))
    assert done.returncode == expected, done.stderr


def test_the_health_check_fails_where_nobody_listens() -> None:
    done = in_image(DOCKER, "bash", str(DOCKER / "ready.sh"), GLOW_PORT="1")
    assert (done.returncode, done.stderr) == (1, "")
