"""Full disks: commands end in one line and resume, and a service keeps what it acknowledged and continues once there is space."""

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from glow.artifact import IndexRoot, verify
from glow.index.stored_fields import STORED_FIELDS
from glow.ingest import IngestLog, IngestState, find_outcome, read_accepted
from glow.query_log import Feedback, LoggedQuery, read_feedback, read_query_log
from tests.attacks.harness import serving
from tests.made_index import documents, made, opened, write
from tests.program import glow
from tests.until import until


class Disk:
    """A small file system in memory, of which a file takes what nobody else is to have."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / ".filler"

    def fill(self, free_bytes: int = 0) -> None:
        """Leaves this much space, rounded to pages."""
        self.empty()
        status = os.statvfs(self.path)
        size = max(status.f_bavail * status.f_frsize - free_bytes, 0)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))

    def empty(self) -> None:
        self._filler.unlink(missing_ok=True)


MakeDisk = Callable[[int], Disk]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MakeDisk]:
    """Mounts disks of so many megabytes, until the test ends; only root can."""
    mounted: list[Path] = []

    def mount(megabytes: int) -> Disk:
        path = tmp_path / f"disk-{len(mounted)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(
                f"no file system can be mounted here ({done.stderr.strip()}); run as root, as CI does"
            )
        mounted.append(path)
        return Disk(path)

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=False)


FULL = 4
"""Exit code of what a disk ends."""
SAID = re.compile("No space left on device|disk is full|make room first")


def ids(root: IndexRoot) -> set[str]:
    return {each.id for each in opened(root)[STORED_FIELDS].scan()}


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
    lines = [{"_id": "d/1", "text": "other words"}, {"_id": "n", "text": "new"}]
    changed = write(tmp_path / "b.jsonl", lines)
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
    commands = [["compact", *where], ["rollback", *where], ["pin", *where, at]]
    small.fill()
    for command in commands:
        refused(*command)
        assert (root.current(), root.pinned()) == (at, [])
    small.empty()
    for command in commands:
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
    known = [find_outcome(small.path / "log", each) for each in accepted[:-1]]
    assert {each.state for each in known if each} <= {"applied"}
    assert glow(*ingest).stdout.strip() == "0 operations applied"


def test_glow_learn_writes_all_or_says_so(disk: MakeDisk, toy_index: Path, tmp_path: Path) -> None:
    hits, query = ("toy/0", "toy/1"), "how do owls hunt"
    searched, clicked = [], []
    for user in range(4):
        searched.append(LoggedQuery(f"r{user}", query, "hybrid", 10, 0, "v", 1.0, hits=hits).values())
        mark = {"source": f"{user:016x}", "period": "p", "time": "2026-11-20T10:00:01.000+00:00"}
        clicked.append(Feedback(f"r{user}", hits[1], "click", 2, **mark).values())
    queries = write(tmp_path / "queries.jsonl", searched)
    clicks = write(tmp_path / "feedback.jsonl", clicked)
    small = disk(1)
    small.fill()
    learn = ["learn-clicks", "--index-root", toy_index, "--query-log", queries, "--feedback-log", clicks]
    refused(*learn, "--out", small.path / "learned.jsonl")
    small.empty()
    done = glow(*learn, "--out", small.path / "learned.jsonl")
    assert done.returncode == 0, done.stderr
    assert "how do owls hunt" in (small.path / "learned.jsonl").read_text()


# A service.

KEY = "a-key-for-writing"
WRITE = {"X-API-Key": KEY}


def test_writes_are_on_disk_or_refused(disk: MakeDisk, toy_model: Path, tmp_path: Path) -> None:
    root = made(toy_model, write(tmp_path / "a.jsonl", documents(12)), tmp_path / "index", index="flat")
    small = disk(1)
    log = small.path / "log"
    flags = ["--write-key", hashlib.sha256(KEY.encode()).hexdigest(), "--ingest-folder", str(log)]
    accepted: list[str] = []
    with (
        serving(root.path, *flags, "--workers", "1") as service,
        httpx.Client(base_url=service.url, headers=WRITE, timeout=30) as client,
    ):

        def send(times: int, size: int) -> list[int]:
            statuses = []
            for _ in range(times):
                name = f"n/{len(accepted)}"
                answer = client.post("/documents", json={"_id": name, "text": "word " * size})
                statuses.append(answer.status_code)
                if answer.status_code == 202:
                    accepted.append(answer.json()["operation"])
            return statuses

        assert set(send(3, 10)) == {202}
        for free_kb in (4, 8, 20):
            small.fill(free_kb << 10)
            statuses = send(60, 400)
            assert set(statuses) == {202, 507}
            assert set(send(40, 400)) == {507}
            # What was begun and refused is gone: every line is whole, and is one that was acknowledged.
            assert [str(each.id) for each in read_accepted(log, IngestState())] == accepted
            assert client.post("/search", json={"query": "owls"}).status_code == 200
            small.empty()
            assert set(send(2, 10)) == {202}
        small.fill()
        # Another process begins a file there: refused writes leave none.
        files = len(list((log / "log").iterdir()))
        with serving(root.path, *flags, "--workers", "1") as other:
            for number in range(5):
                body = {"_id": f"o{number}", "text": "x"}
                answer = httpx.post(f"{other.url}/documents", json=body, headers=WRITE)
                assert (answer.status_code, answer.json()["code"]) == (507, "disk_failed")
        assert len(list((log / "log").iterdir())) == files
        small.empty()
        ingest = ["ingest", "--index-root", root.path, "--model", toy_model, "--ingest-folder", log]
        done = glow(*ingest, "--once")
        assert done.returncode == 0, done.stderr
        written = {f"n/{each}" for each in range(len(accepted))}
        assert ids(root) == written | {f"d/{each}" for each in range(12)}
        states = {client.get(f"/operations/{each}").json()["state"] for each in accepted}
        assert states <= {"applied", "visible"}


def test_logs_of_queries_and_feedback_lose_whole_lines_alone(disk: MakeDisk, toy_index: Path) -> None:
    small = disk(1)
    queries, feedback = small.path / "queries.jsonl", small.path / "feedback.jsonl"
    flags = ["--query-log", str(queries), "--feedback-log", str(feedback), "--workers", "1"]
    with serving(toy_index, *flags) as service, httpx.Client(base_url=service.url, timeout=30) as client:

        def use(times: int) -> str:
            for number in range(times):
                answer = client.post("/search", json={"query": f"how do bees find home {number}"})
                assert answer.status_code == 200
                found = answer.json()
                body = {"request_id": found["request_id"], "id": found["hits"][0]["id"], "kind": "click"}
                assert client.post("/feedback", json=body).status_code == 202
            return str(body["request_id"]).partition(".")[0]  # without its signature

        def until_written(request_id: str) -> None:
            until(lambda: all(request_id in path.read_text() for path in (queries, feedback)))

        until_written(use(10))
        small.fill(4 << 10)
        use(60)
        # Each log has a thread of its own: a disk that is emptied before both tried would lose lines of one alone.
        lost = [f'glow_{log}_lost_total{{reason="not_written"}}' for log in ("query_log", "feedback")]
        until(lambda: all(each in client.get("/metrics").text for each in lost))
        small.empty()
        until_written(use(10))
        assert 20 <= len(list(read_query_log(queries))) < 80
        assert 20 <= len(list(read_feedback(feedback))) < 80
