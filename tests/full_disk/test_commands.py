"""Commands on a full disk: one line, an exit code, nothing half-done; the same command resumes once there is space."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from glow.artifact import IndexRoot, verify
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.ingest import IngestLog, find_outcome
from glow.query_log import Feedback, LoggedQuery
from tests.attacks.harness import ROOT
from tests.full_disk.conftest import MakeDisk
from tests.made_index import documents, made, write

FULL = 4
"""Exit code of what a disk ends."""
SAID = re.compile("No space left on device|disk is full|make room first")


def glow(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "glow", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def ids(root: IndexRoot) -> set[str]:
    index = Index.open(root.folder(root.current()))
    return {each.id for each in index[STORED_FIELDS].scan()}


def refused(*arguments: object) -> None:
    """The command ends in one line that says what the disk said."""
    done = glow(*arguments)
    last = done.stderr.strip().splitlines()[-1]
    assert (done.returncode, bool(SAID.search(last))) == (FULL, True), done.stderr[-2_000:]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "free_kb", [8, *(pytest.param(size, marks=pytest.mark.slow) for size in (0, 200, 400))]
)
def test_a_build_goes_on_where_the_disk_ended_it(
    free_kb: int, disk: MakeDisk, toy_model: Path, toy_corpus: Path
) -> None:
    small = disk(64)
    small.fill(free_kb << 10)
    build = ["build", "--threads", 1, "--model", toy_model, "--input", toy_corpus]
    build += ["--index-root", small.path / "index"]
    refused(*build)
    root = IndexRoot(small.path / "index")
    assert not (root.path / "CURRENT").exists()
    small.empty()
    assert glow(*build).returncode == 0
    assert len(ids(root)) == 50


def test_changes_and_publications_leave_what_is_live(disk: MakeDisk, toy_model: Path, tmp_path: Path) -> None:
    small = disk(64)
    root = made(toy_model, write(tmp_path / "a.jsonl", documents(40)), small.path / "index", index="flat")
    changed = write(
        tmp_path / "b.jsonl", [{"_id": "d/1", "text": "other words"}, {"_id": "n", "text": "new"}]
    )
    gone = tmp_path / "gone.txt"
    gone.write_text("d/2\n")
    at, where = root.current(), ["--index-root", root.path]
    commands: list[list[object]] = [
        ["upsert", *where, "--model", toy_model, "--threads", 1, "--input", changed],
        ["delete", *where, "--input", gone],
    ]
    for command in commands:
        small.fill()
        refused(*command)
        assert root.current() == at
        small.empty()
        assert glow(*command).returncode == 0
        verify(root.folder(root.current()), "index")
        at = root.current()
    small.fill()
    for command in (["compact", *where], ["rollback", *where], ["pin", *where, at]):
        refused(*command)
        assert (root.current(), root.pinned()) == (at, [])
    small.empty()
    for command in (["compact", *where], ["rollback", *where], ["pin", *where, at]):
        assert glow(*command).returncode == 0
    assert (root.current(), root.pinned()) == (at, [at])
    assert "n" in ids(root) and "d/2" not in ids(root)


@pytest.mark.parametrize("free_kb", [0, 8, *(pytest.param(size, marks=pytest.mark.slow) for size in (4, 12))])
def test_glow_ingest_waits_for_room_and_forgets_nothing(
    free_kb: int, disk: MakeDisk, toy_model: Path, tmp_path: Path
) -> None:
    root = made(toy_model, write(tmp_path / "a.jsonl", documents(12)), tmp_path / "index", index="flat")
    small = disk(1)
    log = IngestLog(small.path / "log", 1 << 20)
    accepted = [log.append("upsert", documents=[{"_id": f"n/{each}", "text": "words"}]) for each in range(40)]
    accepted.append(log.append("delete_by_filter", filter={"field": "nowhere", "eq": 1}))
    log.close()
    small.fill(free_kb << 10)
    ingest = ["ingest", "--index-root", root.path, "--model", toy_model, "--threads", 1, "--once"]
    ingest += ["--ingest-folder", small.path / "log", "--batch-documents", 7]
    if free_kb < 12:
        refused(*ingest)
    small.empty()
    done = glow(*ingest)
    assert done.returncode == 0, done.stderr
    assert {f"n/{each}" for each in range(40)} <= ids(root)
    failed = find_outcome(small.path / "log", accepted[-1])
    assert failed is not None and failed.state == "failed"
    known = [find_outcome(small.path / "log", each) for each in accepted]
    assert all(each is None or each.state == "applied" for each in known[:-1])
    assert glow(*ingest).stdout.strip() == "0 operations applied"


def test_glow_learn_writes_all_or_says_so(disk: MakeDisk, toy_index: Path, tmp_path: Path) -> None:
    queries, clicks = tmp_path / "queries.jsonl", tmp_path / "feedback.jsonl"
    index = Index.open(IndexRoot(toy_index).folder(IndexRoot(toy_index).current()))
    names = [each.id for each in index[STORED_FIELDS].scan()][:10]
    searched, clicked = [], []
    for user in range(4):
        searched.append(
            LoggedQuery(f"r{user}", "how do owls hunt", "hybrid", 10, 0, "v", 1.0, hits=tuple(names)).values()
        )
        mark = {"source": f"{user:016x}", "period": "p", "time": "2026-11-20T10:00:01.000+00:00"}
        clicked.append(Feedback(f"r{user}", names[1], "click", 2, **mark).values())
    for path, values in ((queries, searched), (clicks, clicked)):
        path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    small = disk(1)
    small.fill()
    learn = ["learn-clicks", "--index-root", toy_index, "--query-log", queries, "--feedback-log", clicks]
    refused(*learn, "--out", small.path / "learned.jsonl")
    small.empty()
    done = glow(*learn, "--out", small.path / "learned.jsonl")
    assert done.returncode == 0, done.stderr
    assert "how do owls hunt" in (small.path / "learned.jsonl").read_text()
