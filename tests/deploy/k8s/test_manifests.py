"""Documents of overlays and of the page's examples: valid, with few rights, and what one names another has."""

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from scripts.pin_images import images
from tests.deploy.k8s.conftest import K8S, only, shown

SCHEMAS = Path(__file__).parent / "schemas"
ALERTS = K8S.parent / "monitoring" / "alerts.yml"
VERSIONS = ("1.29", "1.37")
"""docs/kubernetes.md names the first as the least."""
LABELS = {"app.kubernetes.io/name", "app.kubernetes.io/part-of"}
IMAGES = {"glow-service", "glow-builder", "redis"}
LEAST_RIGHTS = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@cache  # overlays share most documents, and a check takes a tenth of a second
def validate(text: str, version: str) -> None:
    """Checks a document, against GLOW's own schema if its kind is not Kubernetes'."""
    document = json.loads(text)
    group, _, of_group = document["apiVersion"].rpartition("/")
    own = SCHEMAS / f"{document['kind'].lower()}-{group}-{of_group}.json"
    if own.is_file():
        jsonschema.Draft202012Validator(json.loads(own.read_text())).validate(document)
    else:
        assert kubernetes_validate.validate(document, version, strict=True) == version


@pytest.mark.parametrize("version", VERSIONS)
def test_every_document_is_valid(system: Any, version: str) -> None:
    for document in system:
        validate(json.dumps(document, sort_keys=True), version)


def assert_few_rights(spec: Any, rights: Any) -> None:
    """More than the restricted Pod Security profile of kubernetes.io asks for."""
    pod = spec["securityContext"]
    assert pod["runAsNonRoot"] is True and pod["runAsUser"] > 0 and "sysctls" not in pod
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    # A Service `glow` would put GLOW_PORT=tcp://…, which is a setting, into every pod of the namespace.
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    for volume in spec.get("volumes", ()):
        assert volume.keys() <= {"name", "persistentVolumeClaim", "emptyDir"}
        assert "emptyDir" not in volume or "sizeLimit" in volume["emptyDir"]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        assert container["securityContext"] == rights
        assert not any("hostPort" in port for port in container.get("ports", ()))
        for limits in container["resources"].values():
            assert {"cpu", "memory"} <= limits.keys()
        assert container["resources"].keys() == {"limits", "requests"}


def test_pods_have_few_rights_and_limits_and_the_namespace_enforces_it(system: Any) -> None:
    assert len(system.templates()) >= 2
    for pod in system.templates().values():
        assert_few_rights(pod["spec"], LEAST_RIGHTS)
    labels = system.get("Namespace", "glow")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_no_secret_is_in_the_files(system: Any) -> None:
    (keys,) = (each for each in system.of("Secret") if each["metadata"]["name"].startswith("glow-keys"))
    assert set(keys["data"].values()) == {""}


def chosen(system: Any, selector: dict[str, Any]) -> list[str]:
    """Pod templates that a selector takes."""
    wanted = selector.get("matchLabels", {}).items()
    return [name for name, pod in system.templates().items() if wanted <= pod["metadata"]["labels"].items()]


def test_every_selector_takes_the_pods_of_one_workload(system: Any) -> None:
    for each in system.of("PodDisruptionBudget"):
        assert len(chosen(system, each["spec"]["selector"])) == 1, each["metadata"]["name"]
    for each in system.of("Deployment", "Service"):
        selector = each["spec"]["selector"]
        selector = {"matchLabels": selector} if each["kind"] == "Service" else selector
        assert chosen(system, selector) == [f"Deployment {each['metadata']['name']}"]
    for pod in system.templates().values():
        for spread in pod["spec"].get("topologySpreadConstraints", ()):
            assert spread["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_the_autoscaler_scales_a_deployment_that_does_not_set_its_number(system: Any) -> None:
    for each in system.of("HorizontalPodAutoscaler"):
        target = each["spec"]["scaleTargetRef"]
        assert "replicas" not in system.get(target["kind"], target["name"])["spec"]


def test_ports_have_a_container_that_listens_on_them(system: Any) -> None:
    names, numbers = set(), set()
    for container, _ in system.containers():
        names |= {port["name"] for port in container.get("ports", ())}
        numbers |= {port["containerPort"] for port in container.get("ports", ())}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            for kind in ("httpGet", "tcpSocket"):
                port = container.get(probe, {}).get(kind, {}).get("port", "http")
                assert port in {each["name"] for each in container.get("ports", ())} | {"http"}
    for service in system.of("Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
    for policy in system.of("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            assert {port["port"] for port in rule["ports"]} <= numbers


def test_policies_deny_first_and_open_only_to_pods_that_are_there(system: Any) -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in system.of("NetworkPolicy")}
    assert policies["glow-default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name, spec in policies.items():
        assert chosen(system, spec["podSelector"])
        rules = (*spec.get("ingress", ()), *spec.get("egress", ()))
        for peer in [peer for rule in rules for peer in (*rule.get("from", ()), *rule.get("to", ()))]:
            if "podSelector" in peer:
                assert chosen(system, peer["podSelector"]), name
    redis = policies["glow-redis"]["ingress"][0]["from"][0]["podSelector"]
    assert chosen(system, redis) == ["Deployment glow"]


def claims(spec: Any) -> dict[str, str]:
    """Volume -> the claim behind it, where there is one."""
    volumes = {each["name"]: each.get("persistentVolumeClaim") for each in spec.get("volumes", ())}
    return {name: claim["claimName"] for name, claim in volumes.items() if claim}


def test_volumes_claims_settings_and_secrets_are_there(system: Any) -> None:
    used: set[str] = set()
    for container, spec in system.containers():
        volumes = {each["name"] for each in spec.get("volumes", ())}
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
        used |= set(claims(spec).values())
        system.environment(container)  # fails where a ConfigMap or Secret is not there
    assert used == {each["metadata"]["name"] for each in system.of("PersistentVolumeClaim")}


def test_images_are_of_one_build_of_this_version_for_the_user_of_the_pods(system: Any) -> None:
    version = tomllib.loads((K8S.parent / "pyproject.toml").read_text())["project"]["version"]
    tags = set()
    for container, spec in system.containers():
        if container["image"] == images()["REDIS_IMAGE"]:
            continue
        name, _, tag = container["image"].rpartition("/")[2].partition(":")
        tags.add(tag)
        assert name in IMAGES
        dockerfile = (K8S.parent / "docker" / f"{name.removeprefix('glow-')}.Dockerfile").read_text()
        user, group = (spec["securityContext"][key] for key in ("runAsUser", "runAsGroup"))
        assert f"\nUSER {user}:{group}\n" in dockerfile
        assert "/usr/bin/tini /usr/bin/tini\n" in dockerfile
    (tag,) = tags
    assert tag in {version, f"{version}-gpu", f"{version}-milvus"}


def test_everything_carries_the_labels(system: Any) -> None:
    generated = ("ConfigMap", "Secret")
    labelled = [each for each in system if each["kind"] not in generated]
    assert all(LABELS <= each["metadata"]["labels"].keys() for each in labelled)
    assert all(LABELS <= pod["metadata"]["labels"].keys() for pod in system.templates().values())


def test_the_alerts_ask_for_the_names_of_the_manifests(system: Any) -> None:
    """Without `jobLabel`, the Prometheus operator names the job after the Service."""
    alerts = ALERTS.read_text(encoding="utf-8")
    assert f'job="{system.get("Service", "glow")["metadata"]["name"]}"' in alerts
    for each in system.of("CronJob"):
        name = each["metadata"]["name"]
        assert f'cronjob="{name}"' in alerts
        assert f'job_name=~"{name}-[0-9]+"' in alerts  # as the cluster names a job of a schedule


# What docs/kubernetes.md shows.


def test_every_component_is_in_an_overlay_that_the_page_shows() -> None:
    assert set(shown()) == {*(each.name for each in (K8S / "components").iterdir()), "Job"}


@only("docs: monitoring")
def test_an_overlay_of_the_page_sets_what_it_is_shown_for(system: Any) -> None:
    (container,) = system.templates()["Deployment glow"]["spec"]["containers"]
    assert system.environment(container)["GLOW_RATE_LIMIT"] == "20"
    assert container["image"] == "registry.example.org/glow-service:0.1.0"
    volumes = system.of("PersistentVolumeClaim")
    assert [each["spec"]["storageClassName"] for each in volumes] == ["nfs"] * len(volumes)
    (rules,) = system.of("PrometheusRule")
    command = "write k8s/components/monitoring/rules.yaml anew, with the command at its head"
    assert rules["spec"] == yaml.safe_load(ALERTS.read_text(encoding="utf-8")), command
    # kube-prometheus-stack passes over what does not carry the label of its release, without a word.
    taken = [each for each in system if each["apiVersion"].startswith("monitoring.coreos.com/")]
    assert {each["kind"] for each in taken} == {"ServiceMonitor", "PrometheusRule"}
    assert {each["metadata"]["labels"]["release"] for each in taken} == {"kube-prometheus-stack"}


@only("cpu")
def test_the_job_that_changes_owners_gives_the_index_to_the_user_of_our_pods(system: Any) -> None:
    job = yaml.safe_load(shown()["Job"])
    validate(json.dumps(job), VERSIONS[0])
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    pod = system.templates()["CronJob glow-rebuild"]["spec"]
    (rebuild,) = pod["containers"]
    user = pod["securityContext"]
    assert container["command"][-2:] == [f"{user['runAsUser']}:{user['runAsGroup']}", "/index"]
    assert container["image"] == rebuild["image"]
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == "/index"
    assert system.get("PersistentVolumeClaim", claims(spec)[mount["name"]])
    assert job["metadata"]["namespace"] == system.get("Namespace", "glow")["metadata"]["name"]
