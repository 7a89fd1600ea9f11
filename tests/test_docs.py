"""The documentation knows every setting, route, command, option and error code, and its links lead somewhere.

A thing is documented where its name stands as code (in backticks or in a code block) in a page right under docs/.
"""

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

from glow.cli import GROUPS, VERBS, app
from glow.errors import GlowError

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n?)+", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
SEPARATOR = re.compile(r"[\s\"'`,()\[\]|=;]+")
ORIGIN = re.compile(r"^https?://[^/]+")


def code_of(page: str) -> str:
    """Everything in a page that is set as code."""
    blocks = [block for _, block in FENCE.findall(page)]
    rest = FENCE.sub("", page)
    return "\n".join([*blocks, *INDENTED.findall(rest), *SPAN.findall(rest)])


def words_of(code: str) -> set[str]:
    """Words of code: options, paths, variables; addresses lose their origin and their query."""
    return {ORIGIN.sub("", word).split("?")[0] for word in SEPARATOR.split(code)} - {""}


def pages() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}


def documented_words() -> set[str]:
    return {word for page in pages().values() for word in words_of(code_of(page))}


def command_of(name: str) -> Any:
    """The command of a verb, as typer makes it; it needs the extras, which `make setup` installs."""
    module, _, attribute = VERBS[name].target.partition(":")
    single = typer.Typer(add_completion=False)
    single.command()(getattr(importlib.import_module(module), attribute))
    return typer.main.get_command(single)


def options_of(name: str) -> set[str]:
    return {
        option
        for parameter in command_of(name).params
        for option in parameter.opts
        if option.startswith("--") and option != "--help"
    }


@pytest.mark.parametrize("name", VERBS)
def test_every_command_and_option_is_on_a_page_that_shows_the_command(name: str) -> None:
    call = re.compile(rf"\bglow(?: [a-z-]+\|)*? ?\b{re.escape(name)}\b")
    shown = [words_of(code) for page in pages().values() if call.search(code := code_of(page))]
    assert shown, f"`glow {name}` is on no page of docs/"
    missing = options_of(name) - set().union(*shown)
    assert not missing, f"{sorted(missing)} are not on a page that shows `glow {name}`"


@pytest.mark.parametrize("name", VERBS)
def test_the_line_of_a_verb_is_what_its_command_says_of_itself(name: str) -> None:
    first = command_of(name).help.strip().splitlines()[0]
    words = [word.strip(".,:;`") for word in VERBS[name].help.split()]
    assert first.split()[0] == words[0], f"{name}: {VERBS[name].help!r} beside {first!r}"


def test_help_lists_every_verb_in_its_group_on_one_screen() -> None:
    shown = CliRunner().invoke(app, ["--help"], terminal_width=100).output
    assert [line[:-1] for line in shown.splitlines() if line[:-1] in GROUPS] == list(GROUPS)
    assert all(re.search(rf"^  {re.escape(name)} ", shown, re.MULTILINE) for name in VERBS)
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
    assert not loaded & {
        "torch",
        "numpy",
        "pydantic",
        "onnxruntime",
        "faiss",
        "fastapi",
        "httpx",
        "rich.console",
    }


def test_a_verb_whose_extra_is_missing_says_which_one() -> None:
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['glow', 'train']; from glow.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert done.stderr == (
        "glow: `glow train` needs the package torch, which is not installed; "
        "run: pip install 'glow-retrieval[train]'\n"
    )


def test_every_setting_of_the_service_is_documented_as_variable_and_flag() -> None:
    from glow_service.settings import Settings

    known = documented_words()
    names = {f"GLOW_{name.upper()}" for name in Settings.model_fields}
    names |= {"--" + name.replace("_", "-") for name in Settings.model_fields}
    assert not names - known, sorted(names - known)


def test_every_route_of_the_service_is_documented(tmp_path: Path) -> None:
    from glow_service.app import create_app
    from glow_service.settings import Settings

    app = create_app(Settings(index_root=tmp_path), on_failure=lambda: None)
    paths = {re.sub(r":\w+\}", "}", str(vars(route)["path"])) for route in app.routes}
    assert len(paths) > 5
    assert not paths - documented_words(), sorted(paths - documented_words())


def test_every_error_code_is_documented() -> None:
    for module in ("glow_service.errors", "glow_service.api.problems"):
        importlib.import_module(module)
    codes = {kind.code for kind in _error_types(GlowError)}
    known = words_of(code_of(errors_page()))
    assert not codes - known, f"docs/errors.md lacks {sorted(codes - known)}"


def test_every_problem_stands_beside_its_status() -> None:
    from glow_service.api.problems import PROBLEMS

    lines = errors_page().splitlines()
    wrong = [
        f"{kind.code} {problem.status}"
        for kind, problem in PROBLEMS.items()
        if not any(f"`{kind.code}`" in line and re.search(rf"\b{problem.status}\b", line) for line in lines)
    ]
    assert not wrong, f"no line of docs/errors.md has both code and status: {wrong}"


def test_every_exit_code_stands_beside_its_code() -> None:
    rows = [line for line in errors_page().splitlines() if line.startswith("|")]
    wrong = [
        f"{kind.code} {kind.exit_code}"
        for kind in _error_types(GlowError)
        if kind.exit_code != GlowError.exit_code
        and not any(
            f"`{kind.code}`" in row and row.rstrip(" |").endswith(f"| {kind.exit_code}") for row in rows
        )
    ]
    assert not wrong, f"no row of docs/errors.md ends in the exit code: {wrong}"


def errors_page() -> str:
    page = DOCS / "errors.md"
    assert page.is_file(), "docs/errors.md is missing: it lists every error code with its status"
    return page.read_text(encoding="utf-8")


def _error_types(kind: type[GlowError]) -> Iterator[type[GlowError]]:
    """Our own error types; test modules may have made some too."""
    if kind.__module__.split(".")[0] in {"glow", "glow_service", "glow_index_builder", "glow_model_export"}:
        yield kind
    for child in kind.__subclasses__():
        yield from _error_types(child)


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


def test_the_readers_of_pages_tell_code_from_prose() -> None:
    page = "# A `b` C\n--prose `--span`\n\n    --indented=1\n\n```bash\ncurl 'http://x:80/a/{id}?q=1' \\\n  --block\n```\n"
    assert words_of(code_of(page)) == {"b", "--span", "--indented", "1", "curl", "/a/{id}", "\\", "--block"}
    assert anchors_of(page) == {"a-b-c"}


def test_machine_paths_are_found_and_examples_are_not() -> None:
    checkout = Path("/srv/somewhere/glow")
    assert machine_paths("see /home/jane/x and C:\\Users\\x", checkout) == ["/home/jane", "C:\\Users\\"]
    assert machine_paths("in /srv/somewhere/glow/docs", checkout) == ["/srv/somewhere/glow"]
    assert machine_paths("/home/user, a/home/jane, /srv/somewhere/glowing, /app", checkout) == []
