"""The nightly job: its commands are known, it never runs twice at once, and it writes where the replicas read."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from glow.cli import app

VARIABLES = {"INDEX_ROOT", "KEEP_VERSIONS", "BUILD_THREADS"}
DOCKER = Path(__file__).parents[3] / "docker"
pytestmark = pytest.mark.parametrize("system", ["base", "cpu", "gpu", "dev"], indirect=True, scope="session")


@pytest.fixture
def job(system: Any) -> Any:
    return system.get("CronJob", "glow-rebuild")["spec"]


@pytest.fixture
def pod(job: Any) -> Any:
    return job["jobTemplate"]["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: Any) -> Any:
    (found,) = pod["containers"]
    return found


def options(command: list[str]) -> dict[str, str]:
    """Option → value of a rebuild's command line, after `index_builder build` knew all of it."""
    start = command.index("/app/rebuild.sh") + 1
    assert command[:start] == ["tini", "-g", "--", "sh", "/app/rebuild.sh"]
    rest = command[start:]
    commands: Any = typer.main.get_command(app)
    context = commands.get_command(None, "build").make_context("build", [*rest, "--index-root", "/index"])
    assert not context.args
    return dict(zip(rest[::2], rest[1::2], strict=True))


def test_the_job_builds_behind_a_gate_from_and_to_its_volumes(container: Any) -> None:
    asked = options(container["command"])
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert asked.keys() - {"--device", "--model"} == {"--input", "--gate"}
    assert asked["--input"].startswith(mounts["input"]["mountPath"] + "/") and mounts["input"]["readOnly"]
    assert asked["--gate"].startswith(mounts["input"]["mountPath"] + "/")
    assert not mounts["index"].get("readOnly")
    wants_gpu = "nvidia.com/gpu" in container["resources"]["limits"]
    assert wants_gpu == (asked.get("--device") == "cuda") == container["image"].endswith("-gpu")
    # The int8 towers of the default model run on CPUs only.
    assert asked.get("--model") == ("/app/models/glow-mini-fp16" if wants_gpu else None)
    assert "models/glow-mini-fp16" in (DOCKER.parent / "docs" / "kubernetes.md").read_text()
    assert "\nCOPY models /app/models\n" in (DOCKER / "builder.Dockerfile").read_text()


def test_the_script_of_the_image_reads_the_variables_of_the_job(container: Any) -> None:
    """docker/rebuild.sh, which builder.Dockerfile puts into /app; keeping two or more leaves one to roll back to."""
    script = (DOCKER / "rebuild.sh").read_text()
    given = {each["name"]: each.get("value", "") for each in container["env"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert given["INDEX_ROOT"] == mounts["index"] and int(given["KEEP_VERSIONS"]) >= 2
    assert given.keys() - {"CUDA_CACHE_PATH"} == VARIABLES
    assert all(f"${name}" in script or f"${{{name}" in script for name in VARIABLES)
    dockerfile = (DOCKER / "builder.Dockerfile").read_text()
    assert re.search(r"^COPY .*docker/rebuild\.sh .*/app/$", dockerfile, re.MULTILINE)


def test_images_are_made_for_the_user_and_the_programs_of_the_pods(system: Any) -> None:
    for container, spec in system.containers():
        name = container["image"].partition(":")[0]
        if name != "redis":
            dockerfile = (DOCKER / f"{name.removeprefix('glow-')}.Dockerfile").read_text()
            user, group = (spec["securityContext"][key] for key in ("runAsUser", "runAsGroup"))
            assert f"\nUSER {user}:{group}\n" in dockerfile
            assert "/usr/bin/tini /usr/bin/tini\n" in dockerfile


def test_the_job_writes_to_the_volume_that_the_replicas_read(system: Any, pod: Any) -> None:
    service = system.templates()["Deployment glow"]["spec"]
    claims = [
        {each["name"]: each.get("persistentVolumeClaim", {}).get("claimName") for each in spec["volumes"]}
        for spec in (pod, service)
    ]
    assert claims[0]["index"] == claims[1]["index"] == "glow-index"
    for key in ("runAsUser", "fsGroup"):  # what one writes, the other may read
        assert pod["securityContext"][key] == service["securityContext"][key]


def test_one_job_at_a_time_that_ends_and_leaves_a_history(job: Any, pod: Any) -> None:
    work = job["jobTemplate"]["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    assert job["successfulJobsHistoryLimit"] >= 1 and job["failedJobsHistoryLimit"] >= 1
    assert work["backoffLimit"] >= 1 and work["activeDeadlineSeconds"] <= 86_400
    assert pod["restartPolicy"] == "Never"


def test_what_would_end_the_same_is_not_tried_again(job: Any, pod: Any) -> None:
    """Exit codes of docs/indexing.md: 6 is the gate; 1, 4, 137 and 143 may go better the second time."""
    rules = job["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    (fatal,) = (rule["onExitCodes"] for rule in rules if rule["action"] == "FailJob")
    assert (fatal["operator"], fatal["values"]) == ("In", [2, 3, 5, 6])
    assert fatal["containerName"] in [each["name"] for each in pod["containers"]]
