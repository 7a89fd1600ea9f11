"""What one manifest names, another one has: pods, volumes, settings, ports, targets."""

import tomllib
from pathlib import Path
from typing import Any

from scripts.pin_images import images

ROOT = Path(__file__).parents[3]
LABELS = {"app.kubernetes.io/name", "app.kubernetes.io/part-of"}
IMAGES = {"glow-service", "glow-builder", "redis"}


def chosen(system: Any, selector: dict[str, Any]) -> list[str]:
    """Pod templates that a selector takes."""
    wanted = selector.get("matchLabels", {}).items()
    return [name for name, pod in system.templates().items() if wanted <= pod["metadata"]["labels"].items()]


def test_every_selector_takes_the_pods_of_one_workload(system: Any) -> None:
    for each in system.of("Deployment", "PodDisruptionBudget"):
        assert len(chosen(system, each["spec"]["selector"])) == 1, each["metadata"]["name"]
    for each in system.of("Deployment"):
        assert chosen(system, each["spec"]["selector"]) == [f"Deployment {each['metadata']['name']}"]
    for each in system.of("Service"):
        selector = {"matchLabels": each["spec"]["selector"]}
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


def test_volumes_claims_settings_and_secrets_are_there(system: Any) -> None:
    claims = {each["metadata"]["name"] for each in system.of("PersistentVolumeClaim")}
    used = set()
    for container, spec in system.containers():
        volumes = {each["name"]: each for each in spec.get("volumes", ())}
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes.keys()
        used |= {
            each["persistentVolumeClaim"]["claimName"]
            for each in volumes.values()
            if "persistentVolumeClaim" in each
        }
        system.environment(container)  # fails where a ConfigMap or Secret is not there
    assert used == claims


def test_images_are_ours_and_have_the_version_that_they_are_built_from(system: Any) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for container, _ in system.containers():
        name, _, tag = container["image"].rpartition("/")[2].partition(":")
        assert name in IMAGES
        if name == "redis":
            assert container["image"] == images()["REDIS_IMAGE"]
        else:
            assert tag in {version, f"{version}-gpu", f"{version}-milvus"}, container["image"]


def test_our_images_are_of_one_build(system: Any) -> None:
    """What a component adds or sets is not of another one."""
    ours = {container["image"] for container, _ in system.containers()} - {images()["REDIS_IMAGE"]}
    assert len({image.rpartition(":")[2] for image in ours}) == 1, ours


def test_everything_carries_the_labels(system: Any) -> None:
    generated = ("ConfigMap", "Secret")
    labelled = [each for each in system if each["kind"] not in generated]
    assert all(LABELS <= each["metadata"]["labels"].keys() for each in labelled)
    assert all(LABELS <= pod["metadata"]["labels"].keys() for pod in system.templates().values())
