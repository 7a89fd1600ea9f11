"""The component query-log: every pod writes a file of its own, and the gate gets them as one."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from glow.cli import app
from glow.query_log import LoggedQuery, read_query_log
from glow_service.settings import Settings
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import QueryLog

DAY_S = 86_400
pytestmark = pytest.mark.parametrize("system", ["docs: query-log"], indirect=True, scope="session")


@pytest.fixture
def job(system: Any) -> Any:
    return system.get("CronJob", "glow-rebuild")["spec"]["jobTemplate"]["spec"]["template"]["spec"]


@pytest.fixture
def gather(job: Any, tmp_path: Path) -> Any:
    """Runs the job's init container on a folder `logs`; a folder `tmp` has what it made."""
    (container,) = job["initContainers"]
    for name in ("logs", "tmp"):
        (tmp_path / name).mkdir()

    def run() -> list[str]:
        _, option, script = container["command"]
        mounts = "|".join(each["mountPath"] for each in container["volumeMounts"])
        script = re.sub(f'"(?={mounts})', f'"{tmp_path}', script)
        subprocess.run([sys.executable, option, script], check=True)
        return [each.query for each in read_query_log(tmp_path / "tmp" / "queries.jsonl")]

    return run


def write(path: Path, *queries: str) -> None:
    """Writes a log as the service does."""
    log = QueryLog(Metrics(), str(path))
    for query in queries:
        log.log(LoggedQuery("r1", query, "dense", 10, 0, "v1", 3.25))
    log.close()


def test_every_pod_writes_a_file_of_its_own(system: Any) -> None:
    spec = system.templates()["Deployment glow"]["spec"]
    (container,) = spec["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "logs")
    assert not mount.get("readOnly")
    names = [each["name"] for each in container["env"]]
    # A variable may name those above it alone.
    assert names.index("POD_NAME") < names.index("GLOW_QUERY_LOG")
    given = dict(zip(names, container["env"], strict=True))
    assert given["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    path = Path(Settings.from_environment(system.environment(container)).query_log)
    assert (path.parent, path.name) == (Path(mount["mountPath"]), "$(POD_NAME).jsonl")
    assert [
        each["persistentVolumeClaim"]["claimName"]
        for pod in (spec, system.templates()["CronJob glow-rebuild"]["spec"])
        for each in pod["volumes"]
        if each["name"] == "logs"
    ] == ["glow-logs", "glow-logs"]
    assert system.get("PersistentVolumeClaim", "glow-logs")["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_gate_of_the_page_reads_what_was_gathered(job: Any) -> None:
    (init,), (rebuild,) = job["initContainers"], job["containers"]
    command = rebuild["command"]
    asked = command[command.index("/app/rebuild.sh") + 1 :]
    commands: Any = typer.main.get_command(app)
    context = commands.get_command(None, "build").make_context("build", [*asked, "--index-root", "/index"])
    log = context.params["query_log"]
    assert (context.params["gate"], str(context.params["source"])) == ("live", "/input/documents")
    assert f'"{log}"' in init["command"][-1]
    for container in (init, rebuild):
        mounts = [each for each in container["volumeMounts"] if each["name"] == "tmp"]
        assert str(log.parent) in {each["mountPath"] for each in mounts}


def test_logs_of_all_pods_and_workers_are_gathered_full_ones_too(
    gather: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glow_service.telemetry.logs.MAX_BYTES", 1 << 12)
    first = QueryLog(Metrics(), str(tmp_path / "logs" / "glow-1.jsonl"))
    write(tmp_path / "logs" / "glow-1.jsonl", *(f"bees {n}" for n in range(40)))
    first.close()
    write(tmp_path / "logs" / "glow-2.jsonl", "home")
    assert len([*(tmp_path / "logs").glob("glow-1.jsonl-2*")]) > 1
    assert sorted(gather()) == sorted([*(f"bees {n}" for n in range(40)), "home"])


def test_a_line_that_is_being_written_is_left_out(gather: Any, tmp_path: Path) -> None:
    for name in ("glow-1", "glow-2"):
        write(tmp_path / "logs" / f"{name}.jsonl", name)
        with (tmp_path / "logs" / f"{name}.jsonl").open("a") as file:
            file.write('{"time": "2026-')
    assert sorted(gather()) == ["glow-1", "glow-2"]


def test_files_of_pods_that_ended_long_ago_go(gather: Any, tmp_path: Path) -> None:
    for name, age_days in (("old", 31), ("new", 29)):
        path = tmp_path / "logs" / f"{name}.jsonl"
        write(path, name)
        os.utime(path, (time.time() - age_days * DAY_S,) * 2)
    assert gather() == ["new"]
    assert {each.name for each in (tmp_path / "logs").iterdir()} == {"new.jsonl", ".new.jsonl.worker"}


def test_the_newest_come_first_where_there_is_more_than_fits(gather: Any, job: Any, tmp_path: Path) -> None:
    assert "256 << 20" in job["initContainers"][0]["command"][-1]
    for age_days, name in enumerate(("today", "yesterday", "before")):
        path = tmp_path / "logs" / f"{name}.jsonl"
        write(path, name)
        if name == "yesterday":
            os.truncate(path, 256 << 20)  # sparse
        os.utime(path, (time.time() - age_days * DAY_S,) * 2)
    assert gather() == ["today", "before"]


def test_without_a_log_there_is_an_empty_one(gather: Any) -> None:
    """The gate then says what it lacks."""
    assert gather() == []
