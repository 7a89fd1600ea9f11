"""Health, readiness, information, logs and settings."""

import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from glow import __version__
from glow.index import Index
from glow.index.vectors import VECTORS
from glow_service.commands.serve import serve_command
from glow_service.settings import Settings, settings_table
from glow_service.telemetry.logs import LogForm, configure_logging
from tests.service.asking import half_search, samples
from tests.until import until


def test_health_and_readiness_are_well(http: httpx.Client, index: Index) -> None:
    assert http.get("/healthz").json() == {"status": "alive"}
    ready = http.get("/readyz")
    assert ready.json() == {
        "status": "ready",
        "index": {"version": index.version, "model": index.model},
        "workers": {"ready": 1, "desired": 1},
    }
    assert ready.headers["x-index-version"] == index.version


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/info", "/"])
def test_head_answers_as_get_without_a_body(http: httpx.Client, path: str) -> None:
    response = http.head(path)
    assert response.status_code == 200 and response.content == b""


def test_info_tells_what_runs(http: httpx.Client, index: Index) -> None:
    info = http.get("/info").json()
    assert info["version"] == __version__ and info["index"]["documents"] == len(index[VECTORS])
    assert info["index"]["hashes"] == index.manifest.hashes
    assert info["providers"] == ["CPUExecutionProvider"]
    assert info["retrievers"] == ["dense", "lexical", "hybrid"]
    assert [field["name"] for field in info["fields"]] == list(index.preprocessor.schema.names)
    assert info["index"]["components"] == ["columns", "impacts", "explain"]
    year = {"type": "number", "types": ["number"], "documents": 50, "distinct": 25}
    assert info["index"]["columns"]["year"] == year and info["index"]["analyzer"] == "english"
    assert info["settings"]["max_body_bytes"] == 65_536 and "index_root" not in info["settings"]


def test_metrics_count_requests_by_route_and_status(http: httpx.Client) -> None:
    before = samples(http)
    http.post("/search", json={"query": "bees " * 90})
    http.post("/search", json={"query": ""})
    http.get("/documents/toy/0")
    http.get("/documents/no/such")
    http.get("/nowhere/at/all")
    after = samples(http)

    def rise(name: str) -> float:
        return after[name] - before.get(name, 0)

    answered = (("/search", 200), ("/search", 422), ("/documents/{id}", 200), ("/documents/{id}", 404))
    for route, status in (*answered, ("unmatched", 404)):
        assert rise(f'glow_requests_total{{route="{route}",status="{status}"}}') == 1
    assert rise('glow_request_seconds_count{route="/search"}') == 2
    assert rise('glow_truncated_total{field="query"}') == 1
    for stage in ("queue", "preprocess", "encode", "search", "fetch"):
        assert rise(f'glow_stage_seconds_count{{stage="{stage}"}}') == 1


def test_each_request_is_one_json_line_without_its_query(http: httpx.Client, server: Any) -> None:
    http.post("/search", json={"query": "bees confidential"}, headers={"X-Request-ID": "log-me-1"})
    http.post("/search", json={"query": ""}, headers={"X-Request-ID": "log-me-2"})
    until(lambda: "log-me-1" in server.logged() and "log-me-2" in server.logged())
    # A last line may be in the middle of being written.
    lines = [json.loads(line) for line in server.logged().rpartition("\n")[0].splitlines()]
    found = {line["request_id"]: line for line in lines if str(line.get("request_id")).startswith("log-me")}
    good, bad = found["log-me-1"], found["log-me-2"]
    assert (good["method"], good["route"], good["status"], good["level"]) == ("POST", "/search", 200, "info")
    assert good["took_ms"] > 0
    assert (bad["status"], bad["code"]) == (422, "invalid_query")
    assert "confidential" not in server.logged()
    assert [line["url"] for line in lines if line["message"] == "listening"] == [server.url]


def test_openapi_is_served_and_its_page_is_ours(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["info"]["version"] == __version__
    assert {"/search", "/v1/search", "/documents/{id}", "/readyz"} <= set(document["paths"])
    assert http.get("/redoc").status_code == 404
    page = http.get("/docs")
    assert page.status_code == 200 and "http" not in page.text.lower().replace("http interface", "")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")


def test_a_client_that_leaves_in_the_middle_is_counted_and_leaves_nothing_behind(http: httpx.Client) -> None:
    name = 'glow_requests_total{route="/search",status="499"}'
    before = samples(http).get(name, 0)
    with half_search(http):
        until(lambda: samples(http)["glow_requests_in_flight"] == 2)
    until(lambda: samples(http).get(name, 0) > before)
    assert samples(http)["glow_requests_in_flight"] == 1


# Log lines for programs and for people.


class Terminal(io.StringIO):
    """Standard error as a person has it."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("form", "stream", "is_text"),
    [
        ("auto", Terminal(), True),
        ("auto", io.StringIO(), False),
        ("json", Terminal(), False),
        ("text", io.StringIO(), True),
    ],
)
def test_people_get_text_and_programs_json(
    monkeypatch: pytest.MonkeyPatch, form: LogForm, stream: io.StringIO, is_text: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging("info", form)
    logger = logging.getLogger("glow_service.x")
    logger.info("ready", extra={"fields": {"documents": 3, "index": "a\x1b[31m"}})
    logger.error("it failed")
    first, second = stream.getvalue().splitlines()
    if is_text:
        assert re.fullmatch(r"\d\d:\d\d:\d\d  ready  documents=3  index=a\\x1b\[31m", first)
        assert second.endswith("  error: it failed")
    else:
        assert json.loads(first)["documents"] == 3 and json.loads(second)["level"] == "error"


# Settings: one table of flags, variables and defaults.


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    """Runs the command line with these flags and variables, in this process."""
    single = typer.Typer(add_completion=False)
    single.command()(serve_command)

    def invoke(*flags: str, **environment: str) -> Result:
        return CliRunner().invoke(single, list(flags), env={"GLOW_INDEX_ROOT": str(tmp_path), **environment})

    return invoke


def test_a_flag_wins_over_the_environment_and_that_over_the_default(run: Callable[..., Result]) -> None:
    # What was chosen shows in the complaint about a limit that the chosen value breaks.
    limits = {"GLOW_MAX_TIMEOUT_MS": "50"}
    assert "default_timeout_ms 2000 exceeds" in run(**limits).stderr
    limits["GLOW_DEFAULT_TIMEOUT_MS"] = "60"
    assert "default_timeout_ms 60 exceeds" in run(**limits).stderr
    assert "default_timeout_ms 70 exceeds" in run("--default-timeout-ms", "70", **limits).stderr


def test_settings_that_are_not_valid_are_all_named_at_once(run: Callable[..., Result]) -> None:
    done = run("--workers", "-1", GLOW_MAX_TOP_K="-1")
    assert done.exit_code == 2 and "--workers (GLOW_WORKERS)" in done.stderr
    assert "--max-top-k (GLOW_MAX_TOP_K)" in done.stderr


def test_help_shows_every_flag_variable_and_default(run: Callable[..., Result]) -> None:
    text = " ".join(run("--help", COLUMNS="240").stdout.split())
    for row in settings_table():
        assert f"{row.flag} " in text and row.env in text and row.help in text


def test_the_environment_carries_every_setting_to_a_worker(tmp_path: Path) -> None:
    values = {"page": False, "drain_s": 1.5, "log_level": "error", "workers": 3, "device": "cuda"}
    settings = Settings(index_root=tmp_path / "an index", port=9, **values)
    assert Settings.from_environment(settings.to_environment()) == settings


def test_every_setting_has_a_sentence_and_a_name_of_its_own() -> None:
    rows = settings_table()
    assert all(row.help.endswith(".") for row in rows)
    assert len({row.env for row in rows} | {row.flag for row in rows}) == 2 * len(rows)
    for row in rows:
        assert row.unit or not row.name.endswith(("_s", "_bytes", "_chars"))


def test_what_info_shows_holds_neither_secrets_nor_paths(tmp_path: Path) -> None:
    class WithSecret(Settings):
        key: SecretStr = SecretStr("hunter2")

    shown = str(WithSecret(index_root=tmp_path).public())
    assert "port" in shown and "hunter2" not in shown and "key" not in shown
    assert str(tmp_path) not in shown


@pytest.mark.parametrize(
    ("cores", "device", "processes", "threads"),
    [
        (1, "cpu", 1, 1),
        (4, "cpu", 4, 1),
        (16, "cpu", 8, 2),
        (16, "cuda", 1, 16),
    ],
)
def test_processes_and_threads_follow_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, device: Any, processes: int, threads: int
) -> None:
    monkeypatch.setattr("glow_service.settings._cores", lambda: cores)
    settings = Settings(index_root=Path("somewhere"), device=device)
    assert (settings.processes, settings.threads) == (processes, threads)
    assert Settings(index_root=Path("somewhere"), workers=3, search_threads=5).processes == 3


def test_a_containers_quota_counts_as_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, cores in (("150000 100000", 2), ("50000 100000", 1), ("max 100000", 4), ("", 4)):
        (tmp_path / "cpu.max").write_text(text)
        monkeypatch.setattr("glow_service.settings.CPU_QUOTA", tmp_path / "cpu.max")
        monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4))
        assert Settings(index_root=Path("somewhere")).processes == cores
