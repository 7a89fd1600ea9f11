"""Images without an engine: what they hold is enough, and their scripts do what they say, in copies of what Dockerfiles copy."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from glow.artifact import IndexRoot
from tests.made_index import write

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
MANIFEST = ROOT / "k8s" / "base" / "rebuild.yaml"
Documents = list[dict[str, Any]]


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
    ("name", "modules"),
    [
        ("service", "glow_service.commands.serve, glow_service.commands.search"),
        ("builder", "glow_index_builder.commands.build, glow_model_export.imported"),
    ],
)
def test_what_an_image_holds_is_enough_to_start(tmp_path: Path, name: str, modules: str) -> None:
    folder = image_folder(name, tmp_path)
    assert not (folder / "glow" / "nn").exists()
    # The editable install of this checkout must not lend what the image lacks.
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}];"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()];"
        f"import {modules}, glow; assert glow.__file__.startswith({str(folder)!r})"
    )
    done = in_image(folder, "python", "-c", code)
    assert done.returncode == 0, done.stderr


def test_the_sample_never_replaces_a_live_version(tmp_path: Path, toy_index: Path) -> None:
    before = (toy_index / "CURRENT").read_bytes()
    done = in_image(tmp_path, "sh", str(DOCKER / "sample.sh"), INDEX_ROOT=str(toy_index))
    assert done.returncode == 0, done.stderr
    assert before.split()[0].decode() in done.stdout
    assert (toy_index / "CURRENT").read_bytes() == before


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1), (None, 1)])
def test_the_health_check_follows_readyz_and_fails_where_nobody_listens(
    status: int | None, expected: int
) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 500)
            self.end_headers()

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port if status else 1
    done = in_image(DOCKER, "bash", str(DOCKER / "ready.sh"), GLOW_PORT=str(port))
    server.shutdown()
    server.server_close()
    assert done.returncode == expected
    assert status or not done.stderr


# The nightly rebuild: the command line of the CronJob and the image's script, with paths and the model replaced.


@pytest.fixture
def volumes(tmp_path: Path, toy_documents: Documents) -> Path:
    """Folders in place of the volumes: `input/judged` with thirty queries, each with the document of that title."""
    judged = tmp_path / "input" / "judged"
    (judged / "qrels").mkdir(parents=True)
    (tmp_path / "input" / "documents").mkdir()
    chosen = toy_documents[:30]
    write(
        judged / "queries.jsonl", [{"_id": f"q{n}", "text": each["title"]} for n, each in enumerate(chosen)]
    )
    rows = "".join(f"q{n}\t{each['_id']}\t1\n" for n, each in enumerate(chosen))
    (judged / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return tmp_path


@pytest.fixture
def toy_documents(toy_corpus: Path) -> Documents:
    return [json.loads(line) for line in toy_corpus.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def night(volumes: Path, toy_model: Path) -> Any:
    """Runs the job's container once."""

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        pod = yaml.safe_load(MANIFEST.read_text())["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        init, _, *command = (placed(each, volumes) for each in container["command"] if each != "-g")
        assert init == "tini"  # passes signals on; the test sends none
        given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        environment = {name: placed(value, volumes) for name, value in given.items()} | variables
        environment |= {"OMP_NUM_THREADS": "1", "BUILD_THREADS": "1"}
        return in_image(ROOT, *command, "--model", str(toy_model), **environment)

    return run


def placed(word: str, volumes: Path) -> str:
    """A path inside the container as one of the checkout or under a folder of the test; other words as they are."""
    if word.startswith("/app/"):
        return str(ROOT / "docker" / word.removeprefix("/app/"))
    return f"{volumes}{word}" if word.startswith(("/index", "/input")) else word


def test_three_nights(volumes: Path, night: Any, toy_documents: Documents) -> None:
    """New documents go live and old versions go; what the gate refuses leaves the live one alone."""
    arrived = volumes / "input" / "documents"
    write(arrived / "monday.jsonl", toy_documents[10:])
    done = night()
    assert done.returncode == 0, done.stderr
    root = IndexRoot(volumes / "index")
    first = root.current()

    write(arrived / "tuesday.jsonl", toy_documents[:10])
    done = night(KEEP_VERSIONS="1")
    assert done.returncode == 0, done.stderr
    second = root.current()
    assert (second != first, root.manifest(second).counts["documents"]) == (True, 50)
    gate = root.manifest(second).parameters["gate"]
    assert (gate["status"], gate["against"], gate["source"]) == ("passed", first, "judged/dev")
    assert root.versions() == [second], "one version was to be kept"

    # The same ids, each with the text of another document: as many, and all wrong.
    others = [*toy_documents[1:], toy_documents[0]]
    wrong = [{**other, "_id": each["_id"]} for each, other in zip(toy_documents, others, strict=True)]
    write(arrived / "monday.jsonl", wrong[10:])
    write(arrived / "tuesday.jsonl", wrong[:10])
    done = night()
    assert done.returncode == 6  # podFailurePolicy ends the job there
    (reason,) = (line for line in done.stderr.splitlines() if "error (" in line)
    assert "error (gate_refused)" in reason and f"{second} stays live: nDCG@10 dense" in reason
    assert root.current() == second
    (refused,) = set(root.versions()) - {second}
    assert root.manifest(refused).parameters["gate"]["status"] == "failed"


def test_a_night_without_documents_is_an_end_that_is_not_tried_again(volumes: Path, night: Any) -> None:
    done = night()
    assert (done.returncode, "error (invalid_input)" in done.stderr) == (2, True), done.stderr
    assert not (volumes / "index" / "CURRENT").exists()
