"""The dashboard and the alert rules ask only for metrics and labels that the service has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from glow_service.telemetry.metrics import Metrics

ROOT = Path(__file__).parent.parent
MONITORING = ROOT / "monitoring"
TARGET_LABELS = frozenset({"job", "instance"})
"""What Prometheus adds to every series."""
OF_OTHERS = {
    "up": TARGET_LABELS,
    "kube_job_failed": TARGET_LABELS | {"namespace", "job_name", "condition"},
    "kube_job_status_start_time": TARGET_LABELS | {"namespace", "job_name"},
    "kube_cronjob_status_last_successful_time": TARGET_LABELS | {"namespace", "cronjob"},
}
"""Series of Prometheus itself, and of kube-state-metrics (docs/metrics/workload in its repository)."""
SELECTOR = re.compile(r"\b((?:glow|kube)_\w+|up)\b(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|on) \(([^)]*)\)")


@pytest.fixture(scope="module")
def known() -> dict[str, frozenset[str]]:
    """Every series' name, as queries write it, and its labels."""
    metrics = Metrics()
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram) and metric._labelnames:
            metric.labels(*metric._labelnames)
    metrics.index_info.labels("v", "m").set(1)
    metrics.index_created.set(1)
    return {
        sample.name: frozenset(sample.labels) | TARGET_LABELS
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    } | OF_OTHERS


def faults(expression: str, known: dict[str, frozenset[str]]) -> Iterator[str]:
    """What a query asks for that is not there."""
    allowed: set[str] = set()
    selectors = SELECTOR.findall(re.sub(r"label_values\((.*), \w+\)", r"\1", expression))
    if not selectors:
        yield f"no metric in {expression!r}"
    for name, matchers in selectors:
        if name not in known:
            yield f"no metric {name}"
            continue
        allowed |= known[name]
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", matchers):
            if label not in known[name]:
                yield f"{name} has no label {label}"
    for labels in GROUPING.findall(expression):
        yield from (
            f"{expression!r}: no label {label}" for label in labels.split(", ") if label not in allowed
        )


@pytest.fixture(scope="module")
def board() -> Any:
    return json.loads((MONITORING / "grafana-dashboard.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in rules["groups"] for rule in group["rules"]]


def expressions(board: Any) -> list[str]:
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    queries += [note["expr"] for note in board["annotations"]["list"]]
    return queries + [row["definition"] for row in board["templating"]["list"] if row["type"] == "query"]


def test_every_query_of_the_dashboard_asks_for_what_is_there(board: Any, known: Any) -> None:
    found = expressions(board)
    assert len(found) > 25
    assert not [fault for expression in found for fault in faults(expression, known)]


def test_every_metric_but_the_version_is_on_the_dashboard(board: Any, known: Any) -> None:
    text = " ".join(expressions(board))
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known if name.startswith("glow_")}
    assert {name for name in names if name not in text} == {"glow_build_info"}


def test_panels_have_ids_of_their_own_places_and_the_chosen_data_source(board: Any) -> None:
    panels = board["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids) > 20
    sources = [row["name"] for row in board["templating"]["list"] if row["type"] == "datasource"]
    assert sources == ["datasource"]
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not own & cells, f"{panel['title']} lies on another panel"
        cells |= own
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == panel["datasource"]["uid"] == "${datasource}"
            assert "$job" in target["expr"], panel["title"]


def test_every_alert_asks_for_what_is_there_and_says_what_it_is_about(alerts: Any, known: Any) -> None:
    assert not [fault for rule in alerts for fault in faults(rule["expr"], known)]
    for rule in alerts:
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_the_docs_say_what_to_do_about_every_alert_and_no_other(alerts: Any) -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (Glow\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in alerts]


def test_the_example_of_scraping_loads_the_rules_and_names_the_job_of_the_alerts(alerts: Any) -> None:
    example = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))
    assert all((MONITORING / name).is_file() for name in example["rule_files"])
    jobs = {job["job_name"] for job in example["scrape_configs"]}
    named = {job for rule in alerts for job in re.findall(r'job="(\w+)"', rule["expr"])}
    assert named and named <= jobs


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("rate(glow_request_total[5m])", "no metric glow_request_total"),
        ('glow_requests_total{statu="200"}', "glow_requests_total has no label statu"),
        ("sum by (stage, le) (rate(glow_request_seconds_bucket[5m]))", "no label stage"),
        ("kube_job_failed unless on (job_nam) kube_job_failed", "no label job_nam"),
        ("1 + 1", "no metric in"),
    ],
)
def test_a_query_for_what_is_not_there_is_found(expression: str, fault: str, known: Any) -> None:
    assert any(fault in found for found in faults(expression, known))
    assert not [*faults('sum by (le) (rate(glow_request_seconds_bucket{route="/search"}[5m]))', known)]
