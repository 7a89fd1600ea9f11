"""What docs/kubernetes.md shows: overlays set what they are shown for, and its job fits the manifests."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")


def manifests() -> dict[str, Any]:
    """By their kind and their first component, if they have one."""
    found = {}
    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        document = yaml.safe_load(block)
        parts = [Path(each).name for each in document.get("components", ())]
        found[" ".join([document["kind"], *parts])] = document
    return found


def test_every_component_is_in_an_overlay_that_the_page_shows() -> None:
    components = {f"Kustomization {each.name}" for each in (ROOT / "k8s" / "components").iterdir()}
    assert set(manifests()) == {*components, "Job"}


@pytest.mark.parametrize("system", ["docs: monitoring"], indirect=True, scope="session")
def test_settings_images_and_storage_are_those_of_the_overlay(system: Any) -> None:
    (container,) = system.templates()["Deployment glow"]["spec"]["containers"]
    assert system.environment(container)["GLOW_RATE_LIMIT"] == "20"
    assert container["image"] == "registry.example.org/glow-service:0.1.0"
    claims = system.of("PersistentVolumeClaim")
    assert [each["spec"]["storageClassName"] for each in claims] == ["nfs"] * len(claims)


@pytest.mark.parametrize("system", ["cpu"], indirect=True, scope="session")
def test_the_job_that_changes_owners_gives_the_index_to_the_user_of_our_pods(system: Any) -> None:
    job = manifests()["Job"]
    assert kubernetes_validate.validate(job, "1.29", strict=True) == "1.29"
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    pod = system.templates()["CronJob glow-rebuild"]["spec"]
    (rebuild,) = pod["containers"]
    user = pod["securityContext"]
    assert container["command"][-2:] == [f"{user['runAsUser']}:{user['runAsGroup']}", "/index"]
    assert container["image"] == rebuild["image"]
    (mount,), (volume,) = container["volumeMounts"], spec["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/index")
    assert system.get("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
    assert job["metadata"]["namespace"] == system.get("Namespace", "glow")["metadata"]["name"]
