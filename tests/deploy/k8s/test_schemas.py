"""Every document of every overlay is valid, strictly, by the schemas of Kubernetes, oldest and newest that we name."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

SCHEMAS = Path(__file__).parent / "schemas"
VERSIONS = ("1.29", "1.37")
"""docs/kubernetes.md names the first as the least."""
_valid: set[tuple[str, str]] = set()


def validate(document: dict[str, Any], version: str) -> None:
    """Checks one document, against GLOW's own schema if its kind is not Kubernetes'."""
    group, _, of_group = document["apiVersion"].rpartition("/")
    own = SCHEMAS / f"{document['kind'].lower()}-{group}-{of_group}.json"
    if own.is_file():
        jsonschema.Draft202012Validator(json.loads(own.read_text())).validate(document)
    else:
        assert kubernetes_validate.validate(document, version, strict=True) == version


@pytest.mark.parametrize("version", VERSIONS)
def test_every_document_is_valid(system: Any, version: str) -> None:
    for document in system:
        text = json.dumps(document, sort_keys=True)
        if (text, version) not in _valid:  # overlays share most, and a check takes a tenth of a second
            validate(document, version)
            _valid.add((text, version))


@pytest.mark.parametrize("system", ["docs: monitoring"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", ("spec", "template", "spec", "containers", 0, "livenessProb"), {}),
        ("Deployment", ("spec", "template", "spec", "terminationGracePeriodSeconds"), "long"),
        ("HorizontalPodAutoscaler", ("spec", "maxReplica"), 3),
        ("ServiceMonitor", ("spec", "endpoints", 0, "pth"), "/metrics"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "four"), "5m"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "for"), "5 minutes"),
    ],
)
def test_a_mistake_is_found(system: Any, kind: str, path: tuple[Any, ...], value: object) -> None:
    document = copy.deepcopy(system.of(kind)[0])
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validate(document, VERSIONS[-1])
