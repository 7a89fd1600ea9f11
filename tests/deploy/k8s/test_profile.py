"""Every pod keeps to the restricted Pod Security profile of kubernetes.io, and a little more."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

VOLUMES = {*"configMap csi downwardAPI emptyDir ephemeral persistentVolumeClaim projected secret".split()}
Document = dict[str, Any]


def faults(template: Document) -> Iterator[str]:
    """What of a pod the profile refuses."""
    spec = template["spec"]
    pod = spec.get("securityContext", {})
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name))
    yield from (f"sysctl {each}" for each in pod.get("sysctls", ()))
    for volume in spec.get("volumes", ()):
        yield from (f"volume of type {kind}" for kind in volume.keys() - VOLUMES - {"name"})
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        own = container.get("securityContext", {})
        both = pod | own
        capabilities = own.get("capabilities", {})
        found = {
            "privileged": not own.get("privileged", False),
            "runAsNonRoot": both.get("runAsNonRoot") is True,
            "runAsUser": both.get("runAsUser", 1) != 0,
            "seccompProfile": both.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities": "ALL" in capabilities.get("drop", ())
            and set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"},
            "hostPort": not any("hostPort" in port for port in container.get("ports", ())),
        }
        yield from (f"{container['name']}: {name}" for name, kept in found.items() if not kept)


def test_every_pod_keeps_to_the_profile(system: Any) -> None:
    assert len(system.templates()) >= 2
    assert not {name: found for name, pod in system.templates().items() if (found := [*faults(pod)])}


def test_the_namespace_enforces_it(system: Any) -> None:
    labels = system.get("Namespace", "glow")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_pods_write_only_to_volumes_hold_no_token_and_have_limits(system: Any) -> None:
    for container, spec in system.containers():
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert spec["automountServiceAccountToken"] is False
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert all("sizeLimit" in each["emptyDir"] for each in spec["volumes"] if "emptyDir" in each)


def test_no_secret_is_in_the_files(system: Any) -> None:
    keys = [each for each in system.of("Secret") if each["metadata"]["name"].startswith("glow-keys")]
    assert len(keys) == 1
    assert set(keys[0]["data"].values()) == {""}


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda spec: spec["securityContext"].update(runAsNonRoot=False), "service: runAsNonRoot"),
        (lambda spec: spec["securityContext"].pop("seccompProfile"), "service: seccompProfile"),
        (lambda spec: spec["containers"][0].pop("securityContext"), "service: capabilities"),
        (lambda spec: spec["volumes"].append({"name": "host", "hostPath": {}}), "volume of type hostPath"),
        (lambda spec: spec.update(hostNetwork=True), "hostNetwork"),
    ],
)
def test_a_fault_of_a_pod_is_found(system: Any, spoil: Callable[[Document], None], fault: str) -> None:
    pod = copy.deepcopy(system.templates()["Deployment glow"])
    spoil(pod["spec"])
    assert fault in [*faults(pod)]
