"""What runs in the pods fits them: settings, routes, metrics, paths and commands of the service and of the jobs."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from glow.cli import app
from glow.commands import rows_of
from glow.query_log import LoggedQuery, read_query_log
from glow_index_builder.options import BuildOptions
from glow_service.app import create_app
from glow_service.live.workers import LONGEST_S
from glow_service.settings import ENV_PREFIX, Settings, settings_table
from glow_service.telemetry.metrics import Metrics
from glow_service.telemetry.query_log import QueryLog
from tests.deploy.k8s.conftest import K8S, PAGE, only, read
from tests.deploy.k8s.test_manifests import LEAST_RIGHTS, VERSIONS, assert_few_rights, claims, validate

DOCKER = K8S.parent / "docker"
RAY_JOB = K8S / "ray" / "build.yaml"


def options(command: str, words: list[str]) -> dict[str, Any]:
    """Options of one of our commands, which must know all of the words."""
    commands: Any = typer.main.get_command(app)
    context = commands.get_command(None, command).make_context(command, list(words))
    assert not context.args
    found: dict[str, Any] = context.params
    return found


def mounts(container: Any) -> dict[str, tuple[str, bool]]:
    """Volume -> where it is mounted, and whether to be written."""
    return {each["name"]: (each["mountPath"], not each.get("readOnly")) for each in container["volumeMounts"]}


@pytest.fixture
def pod(system: Any) -> Any:
    return system.templates()["Deployment glow"]["spec"]


@pytest.fixture
def container(pod: Any) -> Any:
    (found,) = pod["containers"]
    return found


@pytest.fixture
def settings(system: Any, container: Any) -> Settings:
    return Settings.from_environment(system.environment(container))


def routes() -> set[str]:
    service = create_app(Settings(index_root=Path()), on_failure=lambda: None)
    return {str(vars(route)["path"]) for route in service.routes}


def test_variables_are_settings(system: Any) -> None:
    known = {row.env for row in settings_table()} | {"GLOW_STORE_TOKEN"}
    named = {name for each, _ in system.containers() for name in system.environment(each)}
    assert {name for name in named if name.startswith(ENV_PREFIX)} <= known
    assert {"GLOW_INDEX_ROOT", "GLOW_HOST", "GLOW_REDIS_URL", "GLOW_API_KEYS", "GLOW_ADMIN_KEY"} <= named


def test_settings_ports_and_paths_agree(system: Any, container: Any, settings: Settings) -> None:
    assert container["command"] == ["tini", "--", "python", "-m", "glow", "serve"]
    assert settings.host == "0.0.0.0"  # noqa: S104 - a pod's own address
    assert settings.port == container["ports"][0]["containerPort"] == 8080
    assert mounts(container)["index"] == (str(settings.index_root), False)
    assert mounts(container)["tmp"][0] == "/tmp"  # noqa: S108
    redis = system.get("Service", "glow-redis")
    address = f"redis://{redis['metadata']['name']}:{redis['spec']['ports'][0]['port']}/0"
    assert settings.redis_url.get_secret_value() == address
    wants_gpu = "nvidia.com/gpu" in container["resources"]["limits"]
    assert wants_gpu == (settings.device == "cuda") == container["image"].endswith("-gpu")


def test_probes_ask_for_routes_and_wait_for_a_slow_service(container: Any) -> None:
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    paths = {name: container[name]["httpGet"]["path"] for name in probes}
    # A load that takes long must not count as a start that failed.
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert set(paths.values()) <= routes()
    assert container["readinessProbe"]["timeoutSeconds"] > LONGEST_S


def test_a_rollout_never_has_fewer_pods_and_no_pod_is_killed_in_its_requests(
    system: Any, pod: Any, container: Any, settings: Settings
) -> None:
    strategy = system.get("Deployment", "glow")["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxUnavailable": 0, "maxSurge": 1}
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert settings.shutdown_timeout_s > settings.max_timeout_ms / 1_000
    longest_s = int(seconds) + settings.drain_s + settings.shutdown_timeout_s
    assert pod["terminationGracePeriodSeconds"] >= longest_s
    # What is told by /readyz in that time is heard: a service that drains answers at once, whatever else it does.
    readiness = container["readinessProbe"]
    assert settings.drain_s > readiness["periodSeconds"] * readiness["failureThreshold"]


def test_scaling_and_scraping_ask_for_metrics_that_the_service_has(system: Any) -> None:
    exposed = Metrics().text().decode()
    names = {
        metric["pods"]["metric"]["name"]
        for each in system.of("HorizontalPodAutoscaler")
        for metric in each["spec"]["metrics"]
        if metric["type"] == "Pods"
    }
    adapter = yaml.safe_load((K8S / "components/monitoring/adapter-rules.yaml").read_text())
    served = {rule["name"]["as"] for rule in adapter["rules"]}
    assert names <= served
    assert all(f"# TYPE {name} gauge" in exposed for name in served)
    for monitor in system.of("ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        service = system.get("Service", "glow")
        assert endpoint["path"] in routes()
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        assert [each for each in system.of("Service") if wanted <= each["metadata"]["labels"].items()] == [
            service
        ]


# The nightly job.

VARIABLES = {"INDEX_ROOT", "KEEP_VERSIONS", "BUILD_THREADS"}


@pytest.fixture
def job(system: Any) -> Any:
    return system.get("CronJob", "glow-rebuild")["spec"]


@pytest.fixture
def rebuild(job: Any) -> Any:
    (found,) = job["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return found


def build_options(rebuild: Any) -> dict[str, Any]:
    command = rebuild["command"]
    start = command.index("/app/rebuild.sh") + 1
    assert command[:start] == ["tini", "-g", "--", "sh", "/app/rebuild.sh"]
    return options("build", [*command[start:], "--index-root", "/index"])


def test_the_job_builds_behind_a_gate_from_and_to_its_volumes(rebuild: Any) -> None:
    asked, folders = build_options(rebuild), mounts(rebuild)
    folder, is_written = folders["input"]
    assert str(asked["source"]).startswith(f"{folder}/") and not is_written
    assert asked["gate"] == "live" or asked["gate"].startswith(f"{folder}/")
    wants_gpu = "nvidia.com/gpu" in rebuild["resources"]["limits"]
    assert wants_gpu == (asked["device"] == "cuda") == rebuild["image"].endswith("-gpu")
    # The int8 towers of the default model run on CPUs only.
    assert str(asked["model"]).endswith("glow-mini-fp16") == wants_gpu
    assert "models/glow-mini-fp16" in PAGE.read_text()
    dockerfile, script = (DOCKER / "builder.Dockerfile").read_text(), (DOCKER / "rebuild.sh").read_text()
    assert "\nCOPY models /app/models\n" in dockerfile
    assert re.search(r"^COPY .*docker/rebuild\.sh .*/app/$", dockerfile, re.MULTILINE)
    given = {each["name"]: each.get("value", "") for each in rebuild["env"]}
    assert (given["INDEX_ROOT"], True) == folders["index"]
    assert int(given["KEEP_VERSIONS"]) >= 2, "one is left to roll back to"
    assert given.keys() - {"CUDA_CACHE_PATH", "GLOW_STORE_TOKEN"} == VARIABLES
    assert all(f"${name}" in script or f"${{{name}" in script for name in VARIABLES)


def test_the_job_writes_to_the_volume_that_the_replicas_read(job: Any, pod: Any) -> None:
    writer = job["jobTemplate"]["spec"]["template"]["spec"]
    assert claims(writer)["index"] == claims(pod)["index"] == "glow-index"
    for key in ("runAsUser", "fsGroup"):  # what one writes, the other may read
        assert writer["securityContext"][key] == pod["securityContext"][key]


def test_one_job_at_a_time_is_not_tried_again_where_it_would_end_the_same(job: Any, rebuild: Any) -> None:
    work = job["jobTemplate"]["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    assert job["successfulJobsHistoryLimit"] >= 1 and job["failedJobsHistoryLimit"] >= 1
    assert work["backoffLimit"] >= 1 and work["activeDeadlineSeconds"] <= 86_400
    assert work["template"]["spec"]["restartPolicy"] == "Never"
    # Exit codes of docs/indexing.md: 6 is the gate; 1, 4, 137 and 143 may go better the second time.
    (fatal,) = (
        rule["onExitCodes"] for rule in work["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"
    )
    assert (fatal["operator"], fatal["values"]) == ("In", [2, 3, 5, 6])
    assert fatal["containerName"] == rebuild["name"]


# The component `writes`: replicas and the pod that applies share the log, and nobody but that pod writes the index.


@only("docs: writes")
def test_replicas_write_the_log_and_one_pod_with_the_rights_of_the_rebuild_applies_it(
    system: Any, container: Any, rebuild: Any
) -> None:
    deployment = system.get("Deployment", "glow-ingest")["spec"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    (ingest,) = deployment["template"]["spec"]["containers"]
    folder = mounts(container)["ingest"][0]
    assert mounts(container)["ingest"] == mounts(ingest)["ingest"] == (folder, True)
    assert (mounts(container)["index"][1], mounts(ingest)["index"][1]) == (False, True)
    environment = system.environment(container)
    assert "GLOW_WRITE_KEY" in environment
    values = {name: environment[name] for name in ("GLOW_INDEX_ROOT", "GLOW_INGEST_FOLDER")}
    assert str(Settings.from_environment(values).ingest_path) == folder
    for command in (ingest["command"], ingest["livenessProbe"]["exec"]["command"]):
        given = options("ingest", command[command.index("ingest") + 1 :])
        assert str(given["index_root"]) == environment["GLOW_INDEX_ROOT"]
        assert str(given["ingest_folder"]) == folder
    for name in ("image", "securityContext"):
        assert ingest[name] == rebuild[name]


# The component `query-log`: every pod writes a file of its own, and the gate gets them as one.

DAY_S = 86_400
with_query_log = only("docs: query-log")


@pytest.fixture
def gatherer(job: Any) -> Any:
    """The init container that makes one log of all."""
    (found,) = job["jobTemplate"]["spec"]["template"]["spec"]["initContainers"]
    return found


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def gather(gatherer: Any, logs: Path) -> Any:
    """Runs the init container; queries of the log that it made."""

    def run() -> list[str]:
        _, option, script = gatherer["command"]
        script = re.sub(
            f'"(?={"|".join(path for path, _ in mounts(gatherer).values())})', f'"{logs.parent}', script
        )
        subprocess.run([sys.executable, option, script], check=True)
        return [each.query for each in read_query_log(logs.parent / "tmp" / "queries.jsonl")]

    return run


def write(path: Path, *queries: str, age_days: float = 0.0) -> None:
    """Writes a log as the service does."""
    log = QueryLog(Metrics(), str(path))
    for query in queries:
        log.log(LoggedQuery("r1", query, "dense", 10, 0, "v1", 3.25))
    log.close()
    os.utime(path, (time.time() - age_days * DAY_S,) * 2)


@with_query_log
def test_every_pod_writes_a_file_of_its_own(
    system: Any, pod: Any, container: Any, settings: Settings, job: Any
) -> None:
    names = [each["name"] for each in container["env"]]
    # A variable may name those above it alone.
    assert names.index("POD_NAME") < names.index("GLOW_QUERY_LOG")
    given = dict(zip(names, container["env"], strict=True))
    assert given["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    path = Path(settings.query_log)
    assert (str(path.parent), True) == mounts(container)["logs"] and path.name == "$(POD_NAME).jsonl"
    assert claims(pod)["logs"] == claims(job["jobTemplate"]["spec"]["template"]["spec"])["logs"]
    claim = system.get("PersistentVolumeClaim", claims(pod)["logs"])
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


@with_query_log
def test_the_gate_of_the_page_reads_what_was_gathered(gatherer: Any, rebuild: Any) -> None:
    asked = build_options(rebuild)
    assert (asked["gate"], str(asked["source"])) == ("live", "/input/documents")
    assert f'"{asked["query_log"]}"' in gatherer["command"][-1]
    for each in (gatherer, rebuild):
        assert mounts(each)["tmp"][0] == str(asked["query_log"].parent)


@with_query_log
def test_whole_lines_of_all_pods_and_workers_are_gathered_and_none_is_an_empty_log(
    gather: Any, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gather() == [], "the gate then says what it lacks"
    monkeypatch.setattr("glow_service.telemetry.logs.MAX_BYTES", 1 << 12)
    first = QueryLog(Metrics(), str(logs / "glow-1.jsonl"))
    write(logs / "glow-1.jsonl", *(f"bees {n}" for n in range(40)))
    first.close()
    write(logs / "glow-2.jsonl", "home")
    assert len([*logs.glob("glow-1.jsonl-2*")]) > 1
    with (logs / "glow-2.jsonl").open("a") as file:
        file.write('{"time": "2026-')
    assert sorted(gather()) == sorted([*(f"bees {n}" for n in range(40)), "home"])


@with_query_log
def test_the_newest_logs_come_first_and_files_of_pods_that_ended_long_ago_go(
    gather: Any, gatherer: Any, logs: Path
) -> None:
    assert "256 << 20" in gatherer["command"][-1]
    for age_days, name in ((0, "today"), (1, "full"), (29, "before"), (31, "old")):
        write(logs / f"{name}.jsonl", name, age_days=age_days)
    os.truncate(logs / "full.jsonl", 256 << 20)  # sparse
    os.utime(logs / "full.jsonl", (time.time() - DAY_S,) * 2)
    assert gather() == ["today", "before"]
    assert not [*logs.glob("*old.jsonl*")] and len([*logs.glob(".*.worker")]) == 3


# The build on a Ray cluster that KubeRay makes.


@pytest.fixture
def ray_job() -> Any:
    (found,) = read(RAY_JOB)
    return found


def ray_pods(ray_job: Any) -> list[Any]:
    """Specs of the head's pod and of the workers'."""
    cluster = ray_job["spec"]["rayClusterSpec"]
    groups = (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    return [each["template"]["spec"] for each in groups]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ray_job_and_its_pods_are_valid(ray_job: Any, version: str) -> None:
    validate(json.dumps(ray_job), version)
    for spec in ray_pods(ray_job):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, "spec": spec}
        validate(json.dumps(pod), version)


def test_the_ray_jobs_command_is_one_of_ours(ray_job: Any) -> None:
    words = shlex.split(ray_job["spec"]["entrypoint"])
    assert words[:4] == ["python", "-m", "glow", "build"]
    given = dict(zip(words[4::2], words[5::2], strict=True))
    fields = {row.flag: row.name for row in rows_of(BuildOptions, "")}
    asked = BuildOptions.model_validate({fields[flag]: value for flag, value in given.items()})
    (workers,) = ray_job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    cpus = int(workers["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert (asked.runner, asked.ray_address) == ("ray", "auto")
    assert asked.workers == workers["replicas"] == workers["maxReplicas"]
    assert asked.thread_count == cpus * workers["replicas"]  # each task gets its share


def test_rays_pods_have_few_rights_probes_of_their_own_and_what_there_is(ray_job: Any) -> None:
    volumes = {each["metadata"]["name"] for each in read(K8S / "base" / "volumes.yaml")}
    rights = {name: value for name, value in LEAST_RIGHTS.items() if name != "readOnlyRootFilesystem"}
    for spec in ray_pods(ray_job):
        assert_few_rights(spec, rights)
        assert spec["securityContext"]["runAsUser"] == 10001
        assert set(claims(spec).values()) <= volumes
        (container,) = spec["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        # KubeRay's own probes call wget, which the image has not.
        assert {"livenessProbe", "readinessProbe"} <= container.keys()
        assert mounts(container).keys() == {each["name"] for each in spec["volumes"]}
        assert f"--build-arg LOCK=builder-ray --tag {container['image']}" in PAGE.read_text()
    locked = re.search(r"(?m)^ray==(\S+)", (DOCKER / "requirements" / "builder-ray.txt").read_text())
    assert locked and locked[1] == ray_job["spec"]["rayClusterSpec"]["rayVersion"]
    project = tomllib.loads((K8S.parent / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["cluster"][0].startswith("ray[default]")  # its head takes jobs
