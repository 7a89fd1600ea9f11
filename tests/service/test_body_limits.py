"""What costs much to refuse is refused before it is looked at: other requests go on meanwhile."""

import os
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

MANY = {f"m{number}": 1 for number in range(300_000)}


def cpu_seconds(pid: int) -> float:
    """What a process has worked so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/search", {"query": "bees", **{f"m{number}": 1 for number in range(3_000)}}),
        ("/search/batch", {"searches": [{"query": "bees", **MANY}]}),
        ("/search/batch", {"searches": [{"query": "bees", "fusion": {"weights": MANY}}]}),
        ("/search/batch", {"searches": [{"query": "bees", "highlight": [*range(600_000)]}]}),
        ("/v1/embeddings", {"input": [*range(600_000)]}),
    ],
)
def test_a_body_of_very_many_members_is_refused_at_once(
    server: Any, http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    content = orjson.dumps(body)
    headers = {"Content-Type": "application/json"}
    begin = cpu_seconds(server.process.pid)
    refused = http.post(path, content=content, headers=headers)
    took_s = cpu_seconds(server.process.pid) - begin
    assert refused.status_code == 422, refused.text
    assert "at most" in refused.json()["detail"]
    assert took_s < 0.5, "checking each member took 2 s"


def test_what_was_found_is_not_written_out_whole(http: httpx.Client) -> None:
    refused = http.post("/search", json={"query": ["x" * 1_000] * 50, "top_k": "y" * 5_000})
    assert refused.status_code == 422
    details = [fault["detail"] for fault in refused.json()["errors"]]
    assert len(details) == 2
    assert all(len(detail) < 200 for detail in details)
