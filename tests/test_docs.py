"""Links of the documentation lead somewhere, its examples parse, and the help of `glow` is whole and light."""

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from glow.cli import COMMANDS, GROUPS, app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")


def command_of(name: str) -> Any:
    """The typer command of a `glow` command; it needs the extras, which `make setup` installs."""
    module, _, attribute = COMMANDS[name].target.partition(":")
    single = typer.Typer(add_completion=False)
    single.command()(getattr(importlib.import_module(module), attribute))
    return typer.main.get_command(single)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_a_verb_is_what_its_command_says_of_itself(name: str) -> None:
    first = command_of(name).help.strip().splitlines()[0]
    words = [word.strip(".,:;`") for word in COMMANDS[name].help.split()]
    assert first.split()[0] == words[0], f"{name}: {COMMANDS[name].help!r} beside {first!r}"


def test_help_lists_every_verb_in_its_group_on_one_screen() -> None:
    shown = CliRunner().invoke(app, ["--help"], terminal_width=100).output
    assert [line[:-1] for line in shown.splitlines() if line[:-1] in GROUPS] == list(GROUPS)
    assert all(re.search(rf"^  {re.escape(name)} ", shown, re.MULTILINE) for name in COMMANDS)
    assert len(shown.splitlines()) <= 60


LIGHT = """
import sys
from glow.cli import main
sys.argv = ["glow", "--help"]
try:
    main()
except SystemExit:
    pass
print("loaded:", *sys.modules)
"""


def test_help_imports_nothing_that_a_verb_needs() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rpartition("loaded:")[2].split())
    heavy = "torch numpy pydantic onnxruntime faiss fastapi httpx rich.console"
    assert not loaded & set(heavy.split())


def tracked_files() -> list[Path]:
    """Files of the repository, the ones about to be added included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this copy is no git checkout: which files belong to the project is not known")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def anchors_of(page: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = [SPAN.sub(r"\1", LINK.sub("", title)) for title in HEADING.findall(FENCE.sub("", page))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for target in LINK.findall(SPAN.sub("", FENCE.sub("", text))):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: no file {target}"
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file.read_text(encoding="utf-8")):
            yield f"{page.relative_to(ROOT)}: no heading for {target}"


def test_relative_links_lead_to_files_and_headings() -> None:
    broken = [fault for page in tracked_files() if page.suffix == ".md" for fault in broken_links(page)]
    assert not broken, "\n" + "\n".join(broken)


TEXT_SUFFIXES = set(
    ".py .md .toml .yml .yaml .json .jsonl .txt .sh .cfg .ini .html .js .css .svg .tsv".split()
) | {""}
# Docs may show a made-up home; nobody's checkout lies there.
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:home|Users)/(?!(?:user|someone|you|me|app|glow)\b)\w+|\b[A-Z]:\\Users\\"
)


def machine_paths(text: str, checkout: Path) -> list[str]:
    """Absolute paths of some machine in a text: homes, and this checkout or its neighbours."""
    found = [match[0] for match in MACHINE_PATH.finditer(text)]
    places = [checkout, *(checkout.parent / name for name in ("shared", "venv", ".venv"))]
    return found + [
        str(place) for place in places if re.search(rf"(?<![\w.]){re.escape(str(place))}\b", text)
    ]


def test_no_tracked_file_names_a_path_of_a_machine() -> None:
    found = []
    for path in tracked_files():
        if path.suffix in TEXT_SUFFIXES and path != Path(__file__):
            text = path.read_bytes().decode("utf-8", "replace")
            found += [f"{path.relative_to(ROOT)}: {place}" for place in machine_paths(text, ROOT)]
    assert not found, "\n" + "\n".join(found)


def test_json_examples_in_the_docs_parse() -> None:
    faults = []
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for language, block in FENCE.findall(path.read_text(encoding="utf-8")):
            values = block.splitlines() if language == "jsonl" else [block] if language == "json" else []
            for value in values:
                try:
                    json.loads(value)
                except json.JSONDecodeError as error:
                    faults.append(f"{path.relative_to(ROOT)}: {error}: {value.strip()[:60]!r}")
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(("name", "most"), [("README.md", 700), ("ARCHITECTURE.md", 1_500)])
def test_the_first_pages_are_short(name: str, most: int) -> None:
    """Words as `wc -w` counts them once cells of tables stand apart, code included."""
    words = (ROOT / name).read_text(encoding="utf-8").replace("|", " ").split()
    assert len(words) <= most, f"{name} has {len(words)} words"


def test_anchors_are_those_of_headings() -> None:
    assert anchors_of("# A `b` C\n--prose\n\n```bash\n# d\n```\n") == {"a-b-c"}


def test_machine_paths_are_found_and_examples_are_not() -> None:
    checkout = Path("/srv/somewhere/glow")
    assert machine_paths("see /home/jane/x and C:\\Users\\x", checkout) == ["/home/jane", "C:\\Users\\"]
    assert machine_paths("in /srv/somewhere/glow/docs", checkout) == ["/srv/somewhere/glow"]
    assert machine_paths("/home/user, a/home/jane, /srv/somewhere/glowing, /app", checkout) == []
