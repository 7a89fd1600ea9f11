"""Settings: one table of flags, variables and defaults."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from glow.errors import ConfigError
from glow_service.commands.serve import serve_command
from glow_service.settings import Settings, settings_table


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
    limits = {"GLOW_MAX_CANDIDATES": "50", "GLOW_MAX_TOP_K": "10"}
    assert "default_candidates 100 exceeds" in run(**limits).stderr
    limits["GLOW_DEFAULT_CANDIDATES"] = "60"
    assert "default_candidates 60 exceeds" in run(**limits).stderr
    assert "default_candidates 70 exceeds" in run("--default-candidates", "70", **limits).stderr


def test_settings_that_are_not_valid_are_all_named_at_once(run: Callable[..., Result]) -> None:
    done = run("--workers", "-1", GLOW_MAX_TOP_K="-1")
    assert done.exit_code == 2
    assert "--workers (GLOW_WORKERS)" in done.stderr
    assert "--max-top-k (GLOW_MAX_TOP_K)" in done.stderr


@pytest.mark.parametrize("flags", [["--nope"], ["--device", "tpu"], ["--port", "http"]])
def test_a_wrong_command_line_is_a_usage_error(run: Callable[..., Result], flags: list[str]) -> None:
    assert run(*flags).exit_code == 2


def test_help_shows_every_flag_variable_and_default(run: Callable[..., Result]) -> None:
    text = " ".join(run("--help", COLUMNS="240").stdout.split())
    for row in settings_table():
        assert f"{row.flag} " in text
        assert row.env in text
        assert row.help in text


def test_the_environment_carries_every_setting_to_a_worker(tmp_path: Path) -> None:
    settings = Settings(
        index_root=tmp_path / "an index",
        port=9,
        page=False,
        drain_s=1.5,
        log_level="error",
        workers=3,
        device="cuda",
    )
    assert Settings.from_environment(settings.to_environment()) == settings


def test_an_empty_variable_counts_as_absent(tmp_path: Path) -> None:
    assert Settings.from_environment({"GLOW_INDEX_ROOT": str(tmp_path), "GLOW_PORT": ""}).port == 8080


def test_faults_name_the_flag_the_variable_and_what_was_found() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.from_environment({"GLOW_PORT": "ninety", "GLOW_WORKERS": "-1"})
    message = str(caught.value)
    for part in (
        "--index-root (GLOW_INDEX_ROOT)",
        "--port (GLOW_PORT)",
        "'ninety'",
        "--workers (GLOW_WORKERS)",
    ):
        assert part in message


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings(index_root=tmp_path).port = 1  # type: ignore[misc]


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
    assert "port" in shown
    assert "hunter2" not in shown
    assert "key" not in shown
    assert str(tmp_path) not in shown


@pytest.mark.parametrize(
    ("cores", "device", "processes", "threads"),
    [
        (1, "cpu", 1, 1),
        (2, "cpu", 2, 1),
        (4, "cpu", 4, 1),
        (16, "cpu", 8, 2),
        (64, "cpu", 8, 8),
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


def test_a_batch_never_needs_more_permits_than_there_are() -> None:
    settings = Settings(index_root=Path("somewhere"), max_in_flight=8, max_body_bytes=64 << 20)
    assert settings.batch_limit == 8
    assert settings.batch_bytes == 64 << 20
