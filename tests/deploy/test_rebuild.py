"""The nightly rebuild without a cluster: the command line of the CronJob, with paths and the model replaced."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from glow.artifact import IndexRoot

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "k8s" / "base" / "rebuild.yaml"
Documents = list[dict[str, Any]]


@pytest.fixture
def volumes(tmp_path: Path, toy_corpus: Path) -> Path:
    """Folders in place of the volumes: `input/judged` with thirty queries, each with the document of that title."""
    judged = tmp_path / "input" / "judged"
    (judged / "qrels").mkdir(parents=True)
    (tmp_path / "input" / "documents").mkdir()
    chosen = read(toy_corpus)[:30]
    queries = [{"_id": f"q{n}", "text": each["title"]} for n, each in enumerate(chosen)]
    (judged / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    rows = "".join(f"q{n}\t{each['_id']}\t1\n" for n, each in enumerate(chosen))
    (judged / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return tmp_path


@pytest.fixture
def arrive(volumes: Path) -> Callable[[str, Documents], None]:
    """Puts a file of documents into the input folder."""

    def write(name: str, documents: Documents) -> None:
        text = "".join(json.dumps(each) + "\n" for each in documents)
        (volumes / "input" / "documents" / name).write_text(text, encoding="utf-8")

    return write


@pytest.fixture
def night(volumes: Path, toy_model: Path) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Runs the job's container once."""

    def run() -> subprocess.CompletedProcess[str]:
        pod = yaml.safe_load(MANIFEST.read_text())["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        init, _, *command = (placed(each, volumes) for each in container["command"] if each != "-g")
        assert init == "tini"  # passes signals on; the test sends none
        given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        environment = {name: placed(value, volumes) for name, value in given.items()}
        environment |= {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
        command += ["--model", str(toy_model), "--threads", "1"]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    return run


def placed(word: str, volumes: Path) -> str:
    """A path inside the container as one of the checkout or under a folder of the test; other words as they are."""
    if word.startswith("/app/"):
        return str(ROOT / "docker" / word.removeprefix("/app/"))
    return f"{volumes}{word}" if word.startswith(("/index", "/input")) else word


def read(path: Path) -> Documents:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_three_nights(volumes: Path, arrive: Any, night: Any, toy_corpus: Path) -> None:
    """New documents go live and the version before stays; what the gate refuses leaves the live one alone."""
    documents = read(toy_corpus)
    arrive("monday.jsonl", documents[10:])
    done = night()
    assert done.returncode == 0, done.stderr
    root = IndexRoot(volumes / "index")
    first = root.current()

    arrive("tuesday.jsonl", documents[:10])
    done = night()
    assert done.returncode == 0, done.stderr
    second = root.current()
    assert (second != first, root.manifest(second).counts["documents"]) == (True, 50)
    gate = root.manifest(second).parameters["gate"]
    assert (gate["status"], gate["against"], gate["source"]) == ("passed", first, "judged/dev")

    # The same ids, each with the text of another document: as many, and all wrong.
    others = [*documents[1:], documents[0]]
    wrong = [{**other, "_id": each["_id"]} for each, other in zip(documents, others, strict=True)]
    arrive("monday.jsonl", wrong[10:])
    arrive("tuesday.jsonl", wrong[:10])
    done = night()
    assert done.returncode == 6  # podFailurePolicy ends the job there
    (reason,) = (line for line in done.stderr.splitlines() if "error (" in line)
    assert "error (gate_refused)" in reason and f"{second} stays live: nDCG@10 dense" in reason
    assert root.current() == second
    (refused,) = set(root.versions()) - {first, second}
    assert root.manifest(refused).parameters["gate"]["status"] == "failed"
    assert root.rollback().name == first


def test_a_night_without_documents_is_an_end_that_is_not_tried_again(volumes: Path, night: Any) -> None:
    done = night()
    assert (done.returncode, "error (invalid_input)" in done.stderr) == (2, True), done.stderr
    assert not (volumes / "index" / "CURRENT").exists()
