"""The alerts of the Prometheus operator are those of monitoring/alerts.yml, and ask for what a cluster has."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "monitoring" / "alerts.yml"
RULES = ROOT / "k8s" / "components" / "monitoring" / "rules.yaml"
with_monitoring = pytest.mark.parametrize("system", ["docs: monitoring"], indirect=True, scope="session")


def test_the_rules_repeat_the_alerts_to_the_letter() -> None:
    head, spec, rules = RULES.read_text(encoding="utf-8").partition("\nspec:\n")
    assert spec
    command = next(line for line in head.splitlines() if "sed -i" in line)
    assert rules == textwrap.indent(ALERTS.read_text(encoding="utf-8"), "  "), f"write it anew: {command}"


@with_monitoring
def test_the_operator_gets_every_alert_as_it_is(system: Any) -> None:
    (rules,) = system.of("PrometheusRule")
    assert rules["spec"] == yaml.safe_load(ALERTS.read_text(encoding="utf-8"))


@with_monitoring
def test_what_the_operator_takes_carries_the_label_that_the_page_sets(system: Any) -> None:
    """kube-prometheus-stack passes over what does not carry the label of its release, without a word."""
    taken = [each for each in system if each["apiVersion"].startswith("monitoring.coreos.com/")]
    assert {each["kind"] for each in taken} == {"ServiceMonitor", "PrometheusRule"}
    assert {each["metadata"]["labels"]["release"] for each in taken} == {"kube-prometheus-stack"}


def test_the_alerts_ask_for_the_names_of_the_manifests(system: Any) -> None:
    """Without `jobLabel`, the Prometheus operator names the job after the Service."""
    alerts = ALERTS.read_text(encoding="utf-8")
    assert f'job="{system.get("Service", "glow")["metadata"]["name"]}"' in alerts
    for each in system.of("CronJob"):
        name = each["metadata"]["name"]
        assert f'cronjob="{name}"' in alerts
        assert f'job_name=~"{name}-[0-9]+"' in alerts  # as the cluster names a job of a schedule
