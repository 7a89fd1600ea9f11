"""Flags of before still work, with one line that names today's."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from glow.cli import VERBS
from glow.cli import app as glow
from glow.cli.app import load
from glow.commands import IndexRootOptions, command, option, package_app, say
from glow.commands.renamed import rename_variables, renamed
from glow.renamed import RENAMED_COMMANDS, RENAMED_FLAGS, RENAMED_SETTINGS
from glow.runtime.reranker import RerankerShape
from glow_service.commands.files import read_files
from glow_service.search.shapes import RerankBody, SearchBody
from glow_service.settings import Settings, settings_table


class Options(IndexRootOptions):
    """Of the command of these tests."""

    min_users: int = option(2, "People.", ge=1)


@command(Options)
def work(options: Options) -> None:
    """Does the work."""
    say(f"{options.index_root} {options.min_users}")


APP = package_app({"work": work}, "Tests.")


@pytest.mark.parametrize("arguments", [("--output", "there"), ("--output=there",), ("--index-root", "there")])
def test_a_flag_of_before_is_todays(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(APP, [*arguments, "--min-users", "3"])
    assert (done.exit_code, done.stdout) == (0, "there 3\n")
    told = "glow: --output is now called --index-root; the old name will be removed in 0.3\n"
    assert done.stderr == (told if arguments[0].startswith("--output") else "")


def test_values_and_what_a_command_calls_so_itself_stay() -> None:
    assert renamed(["--name", "x", "--", "--output"], {"--index-root"}) == ["--name", "x", "--", "--output"]
    assert renamed(["--output", "x"], {"--output", "--index-root"}) == ["--output", "x"]
    assert renamed(["--output", "x"], {"--other"}) == ["--output", "x"]


def test_an_index_root_may_come_from_the_environment(tmp_path: Path) -> None:
    done = CliRunner().invoke(APP, [], env={"GLOW_INDEX_ROOT": str(tmp_path)})
    assert done.stdout == f"{tmp_path} 2\n"
    missing = CliRunner().invoke(APP, [], env={"GLOW_INDEX_ROOT": None})
    assert missing.exit_code == 2 and "--index-root" in missing.output


def test_a_value_of_before_is_todays_for_its_flag_alone() -> None:
    known = {"--postings", "--index-root"}
    assert renamed(["--impacts", "packed"], known) == ["--postings", "compressed"]
    assert renamed(["--impacts=packed"], known) == ["--postings=compressed"]
    assert renamed(["--output", "packed"], known) == ["--index-root", "packed"]
    assert renamed(["--retriever", "learned"], {"--retriever"}) == ["--retriever", "learned-sparse"]
    assert renamed(["--rerank-method=late"], {"--rerank-method"}) == ["--rerank-method=late-interaction"]


def test_a_command_of_before_is_todays() -> None:
    done = CliRunner().invoke(glow, ["learn", "--help"])
    assert done.exit_code == 0 and "--min-users" in done.stdout
    assert done.stderr == "glow: learn is now called learn-clicks; the old name will be removed in 0.3\n"
    assert CliRunner().invoke(glow, ["lern"]).exit_code == 2


def test_variables_of_before_are_todays_and_todays_win(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"GLOW_OTEL_SHARE": "0.5", "GLOW_SHADOW_SHARE": "1", "GLOW_SHADOW_SAMPLE_RATE": "0"}
    rename_variables(environment)
    assert environment == {"GLOW_OTEL_SAMPLE_RATE": "0.5", "GLOW_SHADOW_SAMPLE_RATE": "0"}
    assert capsys.readouterr().err.count("the old name will be removed in 0.3") == 2
    assert set(RENAMED_SETTINGS.values()) - {"vector_store_token", "vector_store_timeout_ms"} <= set(
        Settings.model_fields
    )


def test_a_file_of_settings_may_have_names_of_before(tmp_path: Path) -> None:
    (tmp_path / "glow.toml").write_text("otel_share = 0.5\n")
    assert read_files(tmp_path / "glow.toml", settings_table(), {}) == {"otel_sample_rate": 0.5}


def test_requests_settings_and_packages_may_have_values_of_before() -> None:
    body = SearchBody.model_validate({"query": "q", "retriever": "learned", "rerank": {"method": "late"}})
    assert body.retriever == "learned-sparse"
    assert isinstance(body.rerank, RerankBody) and body.rerank.method == "late-interaction"
    settings = Settings.model_validate({"index_root": "x", "default_retriever": "learned"})
    assert settings.default_retriever == "learned-sparse"
    shape = {"layers": 2, "split": 1, "size": 8, "compressed": False, "query_tokens": 9, "document_tokens": 9}
    found = RerankerShape.model_validate({**shape, "methods": ["join", "late"]})
    assert found.methods == ("cross-encoder", "late-interaction")


def test_every_new_name_is_a_flag_of_some_command_and_no_old_one_is() -> None:
    every: set[str] = set()
    for name in VERBS:
        every |= {flag for parameter in load(name).params for flag in parameter.opts}
    assert set(RENAMED_FLAGS.values()) <= every
    assert not set(RENAMED_FLAGS) & every - {"--output", "--to"}
    assert set(RENAMED_COMMANDS.values()) <= set(VERBS) and not set(RENAMED_COMMANDS) & set(VERBS)
