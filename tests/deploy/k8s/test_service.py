"""The service's pod fits the service: its settings, routes, metrics, paths, and how it ends."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from glow_service.app import create_app
from glow_service.live.workers import LONGEST_S
from glow_service.settings import ENV_PREFIX, Settings, settings_table
from glow_service.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[3]


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
    app = create_app(Settings(index_root=Path()), on_failure=lambda: None)
    return {str(vars(route)["path"]) for route in app.routes}


def test_variables_are_settings(system: Any) -> None:
    known = {row.env for row in settings_table()} | {"GLOW_STORE_TOKEN"}
    named = {name for each, _ in system.containers() for name in system.environment(each)}
    assert {name for name in named if name.startswith(ENV_PREFIX)} <= known
    assert {"GLOW_INDEX_ROOT", "GLOW_HOST", "GLOW_REDIS_URL", "GLOW_API_KEYS", "GLOW_ADMIN_KEY"} <= named


def test_no_service_link_makes_a_variable_that_is_a_setting(system: Any) -> None:
    """A Service `glow` would put GLOW_PORT=tcp://… into every pod of the namespace."""
    assert all(spec["enableServiceLinks"] is False for _, spec in system.containers())


def test_settings_ports_and_paths_agree(system: Any, pod: Any, container: Any, settings: Settings) -> None:
    assert container["command"] == ["tini", "--", "python", "-m", "glow", "serve"]
    assert settings.host == "0.0.0.0"  # noqa: S104 - a pod's own address
    assert settings.port == container["ports"][0]["containerPort"] == 8080
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert (Path(mounts["index"]["mountPath"]), mounts["index"]["readOnly"]) == (settings.index_root, True)
    assert Path(mounts["tmp"]["mountPath"]) == Path("/tmp")  # noqa: S108
    url = settings.redis_url.get_secret_value()
    redis = system.get("Service", "glow-redis")
    assert url == f"redis://{redis['metadata']['name']}:{redis['spec']['ports'][0]['port']}/0"
    wants_gpu = "nvidia.com/gpu" in container["resources"]["limits"]
    assert wants_gpu == (settings.device == "cuda") == container["image"].endswith("-gpu")


def test_probes_ask_for_routes_of_the_service(container: Any) -> None:
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    paths = {name: container[name]["httpGet"]["path"] for name in probes}
    # A load that takes long must not count as a start that failed.
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert set(paths.values()) <= routes()


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


def test_a_service_that_is_slow_counts_as_ready(container: Any) -> None:
    assert container["readinessProbe"]["timeoutSeconds"] > LONGEST_S


def test_scaling_and_scraping_ask_for_metrics_that_the_service_has(system: Any) -> None:
    exposed = Metrics().text().decode()
    names = [
        metric["pods"]["metric"]["name"]
        for each in system.of("HorizontalPodAutoscaler")
        for metric in each["spec"]["metrics"]
        if metric["type"] == "Pods"
    ]
    adapter = yaml.safe_load((ROOT / "k8s/components/monitoring/adapter-rules.yaml").read_text())
    served = [rule["name"]["as"] for rule in adapter["rules"]]
    assert set(names) <= set(served)
    assert all(f"# TYPE {name} gauge" in exposed for name in served)
    for monitor in system.of("ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        service = system.get("Service", "glow")
        assert endpoint["path"] in routes()
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        taken = [each for each in system.of("Service") if wanted <= each["metadata"]["labels"].items()]
        assert taken == [service]
