"""The build on a Ray cluster that KubeRay makes: a valid RayJob, whose command our command line understands."""

import copy
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from glow.commands import rows_of
from glow_index_builder.options import BuildOptions
from tests.deploy.k8s.test_schemas import VERSIONS, validate

ROOT = Path(__file__).parents[3]
MANIFEST = ROOT / "k8s" / "ray" / "build.yaml"


@pytest.fixture
def job() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
    return document


def templates(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Of the head's pod and of the workers'."""
    cluster = job["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"]["template"], *(each["template"] for each in cluster["workerGroupSpecs"])]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_valid_and_so_are_its_pods(job: dict[str, Any], version: str) -> None:
    validate(job, version)
    for template in templates(job):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, **template}
        assert kubernetes_validate.validate(pod, version, strict=True) == version


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "entryPoint"), "x"),
        (("spec", "submissionMode"), "Job"),
        (("spec", "rayClusterSpec", "rayVersion"), "latest"),
        (("spec", "rayClusterSpec", "headGroupSpec", "rayStartParams", "num-cpus"), 0),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0, "replica"), 3),
    ],
)
def test_a_mistake_in_it_is_found(job: dict[str, Any], path: tuple[Any, ...], value: object) -> None:
    place = copy.deepcopy(job)
    inner: Any = place
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validate(place, VERSIONS[-1])


def test_its_command_is_one_of_ours(job: dict[str, Any]) -> None:
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:4] == ["python", "-m", "glow", "build"]
    given = dict(zip(words[4::2], words[5::2], strict=True))
    fields = {row.flag: row.name for row in rows_of(BuildOptions, "")}
    options = BuildOptions.model_validate({fields[flag]: value for flag, value in given.items()})
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    cpus = int(workers["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert (options.runner, options.ray_address) == ("ray", "auto")
    assert options.workers == workers["replicas"] == workers["maxReplicas"]
    assert options.thread_count == cpus * workers["replicas"]  # each task gets its share


def test_its_pods_are_as_restricted_as_the_others_and_say_when_they_live(job: dict[str, Any]) -> None:
    for template in templates(job):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["enableServiceLinks"] is spec["automountServiceAccountToken"] is False
        (container,) = spec["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"] == container["resources"]["requests"]
        # KubeRay's own probes call wget, which the image has not.
        assert {"livenessProbe", "readinessProbe"} <= container.keys()


def test_volumes_and_image_are_those_that_there_are(job: dict[str, Any]) -> None:
    base = (ROOT / "k8s" / "base" / "volumes.yaml").read_text(encoding="utf-8")
    claims = {each["metadata"]["name"] for each in yaml.safe_load_all(base)}
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    for template in templates(job):
        volumes = {each["name"]: each for each in template["spec"]["volumes"]}
        assert {
            each["persistentVolumeClaim"]["claimName"]
            for each in volumes.values()
            if "persistentVolumeClaim" in each
        } <= claims
        (container,) = template["spec"]["containers"]
        assert {each["name"] for each in container["volumeMounts"]} == volumes.keys()
        assert f"--build-arg LOCK=builder-ray --tag {container['image']}" in page
    lock = (ROOT / "docker" / "requirements" / "builder-ray.txt").read_text(encoding="utf-8")
    wanted = re.search(r"^ray==(\S+)", lock, re.MULTILINE)
    assert wanted is not None
    assert wanted[1] == job["spec"]["rayClusterSpec"]["rayVersion"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["cluster"][0].startswith("ray[default]")  # its head takes jobs
