"""The wheel: what it holds, and that it indexes, serves and searches in an environment that has nothing else.

The environment is empty but for the wheel and what its requirements name, extras left out. Packages are linked from this one, so
no network is needed, and a requirement that is missing in `pyproject.toml` is missing there, too.
"""

import json
import os
import re
import subprocess
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.import_rules import FOLDERS
from tests.ports import free_port
from tests.program import ROOT, python
from tests.until import until

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
QUERY = "how do bees find the way home"
MOST_MB, MOST_ENVIRONMENT_MB, MOST_SERVED_MB = 30, 340, 300


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from a copy of what it is made of."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*FOLDERS, "models", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    options = "-m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir".split()
    done = python(*options, target, source)
    assert done.returncode == 0, done.stderr
    (path,) = target.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment, outside the checkout, with the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in required(PROJECT["project"]["dependencies"]):
        link(name, packages)
    own = ("-m", "pip", "--quiet", "--python", folder / "bin" / "python")
    assert python(*own, "install", "--no-deps", "--no-index", wheel).returncode == 0
    return folder


def required(lines: list[str]) -> Iterator[str]:
    """Every distribution that these requirements bring, theirs included."""
    waiting, seen = [Requirement(line) for line in lines], set[tuple[str, str]]()
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            if (requirement.name, extra) in seen:
                continue
            seen.add((requirement.name, extra))
            try:
                found = distribution(requirement.name).requires or []
            except PackageNotFoundError:  # for another system or Python, by its marker
                continue
            inner = map(Requirement, found)
            waiting += [item for item in inner if not item.marker or item.marker.evaluate({"extra": extra})]
            if not extra:
                yield requirement.name


def link(name: str, packages: Path) -> None:
    """Links an installed distribution into another environment."""
    found = distribution(name)
    tops = {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}
    for top in tops:
        target = packages / top
        if not target.exists():
            target.symlink_to(Path(str(found.locate_file(top))).resolve())


def glow(folder: Path, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command as its users have it: from the environment, far from the checkout."""
    command = [str(folder / "bin" / "glow"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)


def environment() -> dict[str, str]:
    kept = ("HOME", "LANG", "OMP_NUM_THREADS", "TMPDIR")
    return {"PATH": "/usr/bin:/bin", **{name: os.environ[name] for name in kept if name in os.environ}}


def test_the_list_of_packages_is_that_of_the_folders() -> None:
    packages = {
        ".".join([FOLDERS[top], *path.parent.relative_to(ROOT / top).parts])
        for top in FOLDERS
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages | {"glow_models"}


def test_the_wheel_holds_the_product_and_no_name_that_others_may_have(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {*FOLDERS.values(), "glow_models"}
    modules = {name for name in names if name.endswith(".py")}
    sources = {
        f"{package}/{path.relative_to(ROOT / top)}"
        for top, package in FOLDERS.items()
        for path in (ROOT / top).rglob("*.py")
    }
    assert modules == sources
    pages = {
        f"glow_service/page/{path.name}" for path in (ROOT / "service" / "page").iterdir() if path.is_file()
    }
    assert {name for name in names if "/page/" in name} == pages
    assert wheel.stat().st_size < MOST_MB << 20


def test_an_empty_environment_indexes_serves_and_searches(
    installed: Path, toy_corpus: Path, tmp_path: Path
) -> None:
    assert not list(installed.glob("lib/python*/site-packages/service*"))
    built = glow(installed, "build", "--input", toy_corpus.resolve(), "--index-root", "index", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert "50 documents" in built.stdout
    found = glow(installed, "search", QUERY, "--index-root", "index", "--json", "-", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    ids = [hit["id"] for hit in json.loads(found.stdout)["hits"]]
    assert ids[0] == "toy/0"
    port = free_port()
    command = [str(installed / "bin" / "glow"), "serve", "--index-root", "index", "--workers", "2"]
    with subprocess.Popen([*command, "--port", str(port)], cwd=tmp_path, env=environment()) as service:
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: is_ready(url))
            asked = glow(installed, "search", QUERY, "--url", url, "--json", "-", cwd=tmp_path)
            assert asked.returncode == 0, asked.stderr
            assert [hit["id"] for hit in json.loads(asked.stdout)["hits"]] == ids
            with urllib.request.urlopen(f"{url}/", timeout=10) as page:  # noqa: S310 - our own service
                assert b"<title>" in page.read()
            assert served_mb(service.pid) < MOST_SERVED_MB
        finally:
            service.terminate()
    assert service.returncode == 0


def test_the_environment_is_small(installed: Path) -> None:
    (packages,) = installed.glob("lib/python*/site-packages")
    files = (
        Path(folder, name)
        for top in packages.iterdir()
        for folder, _, names in os.walk(top.resolve())
        for name in names
        if not folder.endswith("__pycache__")
    )
    megabytes = sum(path.stat().st_size for path in files) / (1 << 20)
    assert 200 < megabytes < MOST_ENVIRONMENT_MB, f"{megabytes:.1f} MB"


def served_mb(pid: int) -> float:
    """Memory of a process and its children, pages that they share counted once (PSS), in MiB."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = (Path(f"/proc/{each}/smaps_rollup").read_text() for each in (pid, *map(int, children)))
    return sum(int(re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)[1]) for text in lines) / 1024  # type: ignore[index]


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2):  # noqa: S310 - our own service
            return True
    except OSError:
        return False


def test_a_verb_that_needs_an_extra_says_which_and_the_doctor_too(installed: Path, tmp_path: Path) -> None:
    shown = glow(installed, "train", "--help", cwd=tmp_path)
    assert shown.returncode == 0 and "--config" in shown.stdout
    done = glow(installed, "train", "--config", "x.toml", cwd=tmp_path)
    assert done.returncode == 5
    assert "pip install 'glow-retrieval[train]'" in done.stderr
    doctor = glow(installed, "doctor", cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout
    assert "note  extra train" in doctor.stdout
    assert "ok    device cpu" in doctor.stdout
