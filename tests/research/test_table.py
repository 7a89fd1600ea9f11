"""Every page of results says how it is repeated or where its code is, and every command of a study that docs/ shows is taken."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from glow.cli import COMMANDS
from research.__main__ import STUDIES, run

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/results").glob("*.md"))
SHOWN = re.compile(r"python -m research [a-z]+[^`\n#;)]*")
MISSING = re.compile(r"(dir|file) '([^']+)'[\s│]+does not exist")


def shown(page: Path) -> list[str]:
    """The commands of studies on a page, a continued line as one."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [" ".join(each.split()) for each in SHOWN.findall(text)]


CALLED = [(page.name, call) for page in ROOT.glob("docs/**/*.md") for call in shown(page)]
CALLS = sorted({(name, call) for name, call in CALLED if "--" in call})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_how_it_is_repeated_or_where_its_code_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    repeat = re.search(r"^Repeat: (.+)$", text, re.MULTILINE)
    assert repeat or re.search(r"^History: [0-9a-f]{7}\b", text, re.MULTILINE)
    for command in re.findall(r"`([^`]+)`", repeat[1] if repeat else ""):
        program, *rest = shlex.split(command)
        if program == "glow":
            assert rest[0] in COMMANDS
        else:
            assert (program, rest[0]) == ("python", "-m")
            assert rest[1] == "research" or importlib.util.find_spec(rest[1])


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_on_its_page(name: str) -> None:
    assert any(call.split()[3] == name and "--" in call for call in shown(ROOT / STUDIES[name].page))
    assert importlib.util.find_spec(f"research.{name}")


@pytest.mark.parametrize(("page", "call"), CALLS)
def test_a_command_on_a_page_is_taken(
    page: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it says is missing is made, one after the other."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOW_DATA", str(tmp_path))
    arguments = shlex.split(call.replace("$DATA/", "data/"))[3:]
    for _ in arguments:
        code, told = dry(arguments, capsys)
        missing = MISSING.search(told)
        if missing is None:
            break
        made = Path(missing[2])
        made.parent.mkdir(parents=True, exist_ok=True)
        made.mkdir() if missing[1] == "dir" else made.touch()
    assert code == 0, told
    assert all(value in told for value in arguments if value.startswith("data/"))


def dry(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    with pytest.raises(SystemExit) as end:
        run([*arguments, "--dry"])
    told = capsys.readouterr()
    return end.value.code or 0, told.out + told.err


def test_what_is_missing_is_named_and_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["ranking", "nothing", "--collections", str(tmp_path / "none"), "--out", str(out)]
    code, told = dry(arguments, capsys)
    assert code == 2
    assert "none' does not exist" in told
    (tmp_path / "none").mkdir()
    assert str(out) in dry(arguments, capsys)[1]
    assert not out.exists()


def test_without_a_name_all_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    run([])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(STUDIES)
    with pytest.raises(SystemExit, match="no study 'late-ranking'; there are debian"):
        run(["late-ranking"])
