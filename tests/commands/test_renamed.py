"""Flags of before still work, with one line that names today's."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from glow.cli import VERBS
from glow.cli.app import load
from glow.commands import RENAMED_FLAGS, IndexRootOptions, command, option, room_app, say
from glow.commands.renamed import renamed


class Options(IndexRootOptions):
    """Of the command of these tests."""

    min_users: int = option(2, "People.", ge=1)


@command(Options)
def work(options: Options) -> None:
    """Does the work."""
    say(f"{options.index_root} {options.min_users}")


APP = room_app({"work": work}, "Tests.")


@pytest.mark.parametrize("arguments", [("--output", "there"), ("--output=there",), ("--index-root", "there")])
def test_a_flag_of_before_is_todays(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(APP, [*arguments, "--min-users", "3"])
    assert (done.exit_code, done.stdout) == (0, "there 3\n")
    told = "glow: --output is called --index-root now; the old name goes in 0.3\n"
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


def test_every_new_name_is_a_flag_of_some_command_and_no_old_one_is() -> None:
    every: set[str] = set()
    for name in VERBS:
        every |= {flag for parameter in load(name).params for flag in parameter.opts}
    assert set(RENAMED_FLAGS.values()) <= every
    assert not set(RENAMED_FLAGS) & every - {"--output"}
