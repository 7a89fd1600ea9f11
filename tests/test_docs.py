"""The documentation knows every setting, route, command, option and error code, and its links lead somewhere.

A thing is documented where its name stands as code (in backticks or in a code block) in a page right under docs/.
Commands are read from their typer apps; where torch is missing, those of the torch rooms are read from the source.
"""

import ast
import importlib
import importlib.util
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from glow.errors import GlowError

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
COMMAND_ROOMS = (
    "glow.training",
    "glow.evaluation",
    "model_export",
    "index_builder",
    "service",
    "service.explain",
)
TORCH_ROOMS = ("glow.training", "model_export")
HAS_TORCH = importlib.util.find_spec("torch") is not None
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n?)+", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
SEPARATOR = re.compile(r"[\s\"'`,()\[\]|=;]+")
ORIGIN = re.compile(r"^https?://[^/]+")

Options = dict[str, set[str]]
"""Command ("" where a room has one only) -> its long options."""


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


def imported_options(room: str) -> Options:
    """Commands of a room, from its typer app."""
    module = importlib.import_module(f"{room}.__main__")
    apps = [value for value in vars(module).values() if isinstance(value, typer.Typer)]
    command: Any = typer.main.get_command(apps[0] if apps else module.command())
    commands = command.commands if hasattr(command, "commands") else {"": command}
    return {name: set(_long_options(found)) for name, found in commands.items()}


def _long_options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (name for name in parameter.opts if name.startswith("--") and name != "--help")


def parsed_options(room: str) -> Options:
    """Commands of a room, from its source.

    Functions whose arguments are `Annotated[…, typer.Option(…)]`, in place or by an alias, and that are decorated
    with `@app.command`, or given to `app.command("name")` where they are imported.
    """
    folder = ROOT / room.replace(".", "/")
    nodes = [node for path in sorted(folder.glob("*.py")) for node in ast.parse(path.read_bytes()).body]
    aliases = {
        ast.unparse(target): node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    found: Options = {}
    has_callback = False
    for node in ast.parse((folder / "__main__.py").read_bytes()).body:
        match node:
            case ast.FunctionDef(decorator_list=[ast.Call(func=kind, args=names)]):
                has_callback |= ast.unparse(kind) == "app.callback"
                function = node.name if ast.unparse(kind) == "app.command" else None
            case ast.Expr(value=ast.Call(func=ast.Call(args=names), args=[ast.Name(id=function)])):
                pass
            case _:
                continue
        if function is not None:
            name = ast.literal_eval(names[0]) if names else function.replace("_", "-")
            arguments = functions[function].args.args
            found[name] = {option for argument in arguments for option in _parsed(argument, aliases)}
    # typer makes a lone command the app itself, unless a callback says that more may come.
    return {"": next(iter(found.values()))} if len(found) == 1 and not has_callback else found


def _parsed(argument: ast.arg, aliases: Mapping[str, ast.expr]) -> Iterator[str]:
    annotation = argument.annotation
    if isinstance(annotation, ast.Name):
        annotation = aliases.get(annotation.id)
    match annotation:
        case ast.Subscript(slice=ast.Tuple(elts=[_, ast.Call(func=function, args=given)])):
            if ast.unparse(function) == "typer.Option":
                names = [str(ast.literal_eval(name)) for name in given]
                long = [name.split("/")[0] for name in names if name.startswith("--")]
                yield from long or ["--" + argument.arg.replace("_", "-")]


def test_every_room_with_a_command_line_is_there() -> None:
    missing = [room for room in COMMAND_ROOMS if not _main_file(room).is_file()]
    assert not missing, f"no __main__.py in {missing}: their commands are not checked"


def _main_file(room: str) -> Path:
    return ROOT / room.replace(".", "/") / "__main__.py"


@pytest.mark.parametrize("room", [room for room in COMMAND_ROOMS if _main_file(room).is_file()])
def test_every_command_and_option_is_on_a_page_that_shows_the_command(room: str) -> None:
    options = imported_options(room) if HAS_TORCH or room not in TORCH_ROOMS else parsed_options(room)
    assert options
    missing = []
    for command, names in options.items():
        call = f"python -m {room} {command}".strip()
        shown = [words_of(code) for page in pages().values() if call in (code := code_of(page))]
        if not shown:
            missing.append(f"`{call}` is on no page of docs/")
        known = set().union(*shown)
        missing += [f"{name} is not on a page that shows `{call}`" for name in sorted(names - known)]
    assert not missing, "\n" + "\n".join(missing)


@pytest.mark.skipif(
    not HAS_TORCH, reason="torch is not installed: reading options from source was not compared"
)
@pytest.mark.parametrize("room", [room for room in TORCH_ROOMS if _main_file(room).is_file()])
def test_options_read_from_source_are_those_of_the_app(room: str) -> None:
    assert parsed_options(room) == imported_options(room)


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


def errors_page() -> str:
    page = DOCS / "errors.md"
    assert page.is_file(), "docs/errors.md is missing: it lists every error code with its status"
    return page.read_text(encoding="utf-8")


def _error_types(kind: type[GlowError]) -> Iterator[type[GlowError]]:
    """Our own error types; test modules may have made some too."""
    if kind.__module__.split(".")[0] in {"glow", "service", "index_builder", "model_export"}:
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


def test_the_readers_of_pages_tell_code_from_prose() -> None:
    page = "# A `b` C\n--prose `--span`\n\n    --indented=1\n\n```bash\ncurl 'http://x:80/a/{id}?q=1' \\\n  --block\n```\n"
    assert words_of(code_of(page)) == {"b", "--span", "--indented", "1", "curl", "/a/{id}", "\\", "--block"}
    assert anchors_of(page) == {"a-b-c"}


def test_machine_paths_are_found_and_examples_are_not() -> None:
    checkout = Path("/srv/somewhere/glow")
    assert machine_paths("see /home/jane/x and C:\\Users\\x", checkout) == ["/home/jane", "C:\\Users\\"]
    assert machine_paths("in /srv/somewhere/glow/docs", checkout) == ["/srv/somewhere/glow"]
    assert machine_paths("/home/user, a/home/jane, /srv/somewhere/glowing, /app", checkout) == []
