"""The batch job and the commands of docs/deployment.md, in containers."""

import json
import re
from pathlib import Path

from tests.deploy.engine import Project
from tests.deploy.load import search
from tests.deploy.promises import Checks, under_load, until

__all__ = ["check_down_and_up", "check_operations", "check_rebuild"]

DOCS = Path(__file__).parents[2] / "docs" / "deployment.md"
CORPUS = Path(__file__).parents[1] / "data" / "toy-corpus.jsonl"


def check_rebuild(project: Project, checks: Checks) -> None:
    """The job publishes what replicas then serve; what its gate refuses never goes live."""
    before = search(project.port, "before")[2]
    _write_input(project.input)
    found: list[str] = []

    def rebuild() -> None:
        done = project.compose("run", "--rm", "-T", "rebuild", "--input", "/input/documents.jsonl")
        checks.note(done.returncode == 0, "rebuild publishes", done.stderr[-500:])
        asked = iter(range(10_000))
        swapped = until(
            lambda: before not in {search(project.port, f"after {next(asked)}")[2] for _ in range(8)}
        )
        found.append(search(project.port, "which version")[2])
        checks.note(swapped and found[0] != before, "replicas follow", found[0])

    under_load(project, checks, "the index is rebuilt", rebuild)
    few = (project.input / "documents.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:10]
    (project.input / "few.jsonl").write_text("".join(few), encoding="utf-8")
    given = ("--input", "/input/few.jsonl", "--gate", "/input/judged")
    done = project.compose("run", "--rm", "-T", "rebuild", *given)
    ended = (done.returncode, done.stderr.strip().splitlines()[-1:])
    checks.note(done.returncode == 6, "a gate that fails ends the job with status 6", ended)
    version = search(project.port, "after a refusal")[2]
    checks.note(version == found[0], "and leaves the live version", found[0])


def _write_input(folder: Path) -> None:
    """The toy corpus, and its titles as judged queries."""
    (folder / "documents.jsonl").write_bytes(CORPUS.read_bytes())
    documents = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    (folder / "judged" / "qrels").mkdir(parents=True)
    queries = [json.dumps({"_id": f"q{n}", "text": each["title"]}) + "\n" for n, each in enumerate(documents)]
    (folder / "judged" / "queries.jsonl").write_text("".join(queries), encoding="utf-8")
    rows = [f"q{n}\t{each['_id']}\t1\n" for n, each in enumerate(documents)]
    (folder / "judged" / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))


def check_operations(project: Project, checks: Checks) -> None:
    """An operator's commands, as docs/deployment.md has them: the list of versions, a way back, a backup and its return."""
    lines = re.findall(r"(?m)^docker compose run .*--entrypoint.*$", DOCS.read_text(encoding="utf-8"))
    versions, rollback, export, restore = lines
    live = search(project.port, "before a rollback")[2]
    done = project.shell(versions)
    checks.note(done.returncode == 0 and live in done.stdout, versions, done.stdout.split("\n")[:4])
    done = project.shell(rollback)
    asked = iter(range(10_000))
    went_back = until(lambda: live not in {search(project.port, f"back {next(asked)}")[2] for _ in range(8)})
    first = search(project.port, "after a rollback")[2]
    checks.note(done.returncode == 0 and went_back, rollback, (live, first))
    done = project.shell(export)
    checks.note(done.returncode == 0, export, done.stderr[-300:])
    project.compose("down", "--volumes")
    done = project.shell(restore)
    checks.note(done.returncode == 0, restore, done.stderr[-300:])
    done = project.compose("up", "--detach", "--wait", "--wait-timeout", "120")
    found = search(project.port, "after a restore")[2]
    checks.note(done.returncode == 0 and found == first, "a backup brings the index back", found)


def check_down_and_up(project: Project, checks: Checks) -> None:
    """The index outlives its containers."""
    version = search(project.port, "before down")[2]
    project.compose("down")
    done = project.compose("up", "--detach", "--wait", "--wait-timeout", "120")
    found = search(project.port, "after up")[2]
    checks.note(done.returncode == 0 and found == version, "down and up keep the index", found)
