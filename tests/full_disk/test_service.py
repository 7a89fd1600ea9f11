"""A service whose disks are full keeps what it acknowledged, and continues as soon as there is space."""

import hashlib
import subprocess
import sys
from pathlib import Path

import httpx

from glow.artifact import IndexRoot
from glow.index import Index
from glow.index.stored_fields import STORED_FIELDS
from glow.ingest import IngestState, read_accepted
from glow.query_log import read_feedback, read_query_log
from tests.attacks.harness import ROOT, serving
from tests.full_disk.conftest import MakeDisk
from tests.made_index import documents, made, write
from tests.until import until

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
                answer = httpx.post(
                    f"{other.url}/documents", json={"_id": f"o{number}", "text": "x"}, headers=WRITE
                )
                assert (answer.status_code, answer.json()["code"]) == (507, "disk_failed")
        assert len(list((log / "log").iterdir())) == files
        small.empty()
        command = [
            sys.executable,
            "-m",
            "glow",
            "ingest",
            "--index-root",
            str(root.path),
            "--model",
            str(toy_model),
        ]
        done = subprocess.run(
            [*command, "--once", "--ingest-folder", str(log)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        index = Index.open(root.folder(root.current()))
        assert {each.id for each in index[STORED_FIELDS].scan()} == {
            *(f"d/{each}" for each in range(12)),
            *(f"n/{each}" for each in range(len(accepted))),
        }
        assert {client.get(f"/operations/{each}").json()["state"] for each in accepted} <= {
            "applied",
            "visible",
        }


def test_logs_of_queries_and_feedback_lose_whole_lines_alone(disk: MakeDisk, toy_index: Path) -> None:
    small = disk(1)
    queries, feedback = small.path / "queries.jsonl", small.path / "feedback.jsonl"
    root = IndexRoot(toy_index)
    flags = ["--query-log", str(queries), "--feedback-log", str(feedback), "--workers", "1"]
    with serving(root.path, *flags) as service, httpx.Client(base_url=service.url, timeout=30) as client:

        def use(times: int) -> str:
            for number in range(times):
                answer = client.post("/search", json={"query": f"how do bees find home {number}"})
                assert answer.status_code == 200
                body = {
                    "request_id": answer.json()["request_id"],
                    "id": answer.json()["hits"][0]["id"],
                    "kind": "click",
                }
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
