"""Lock files: each holds what pyproject.toml asks for, at a version that it allows, with hashes; and all agree on versions."""

import re
import subprocess
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.lock_images import BUILD, LOCKS, UNLOCKED, requirements

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "requirements"
HEAVY = {"torch", "onnx", "scipy", "ir-measures", "bm25s"}
PYTHON = {"python_version": "3.11", "python_full_version": "3.11.7"}
"""Where the lock files are tried; images have it, and CI."""


def blocks(name: str) -> dict[Requirement, str]:
    """Requirement -> the lines of a lock file that it stands in, hashes included."""
    text = re.sub(r"(?m)^#.*\n", "", (FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
    parts = [block for block in re.split(r"(?m)^(?=[a-zA-Z0-9])", text) if block.strip()]
    return {Requirement(re.split(r"\s*\\\n", block, maxsplit=1)[0]): block for block in parts}


def versions(name: str) -> dict[str, str]:
    """Package -> its version in a lock file, on Linux with Python 3.11."""
    place = default_environment() | PYTHON | {"sys_platform": "linux", "platform_system": "Linux"}
    lines = [line for line in blocks(name) if line.marker is None or line.marker.evaluate(place)]
    found = {canonicalize_name(line.name): str(line.specifier).removeprefix("==") for line in lines}
    assert len(found) == len(lines), f"{name}.txt names a package twice"
    return found


@pytest.mark.parametrize("name", [*LOCKS, "build"])
def test_a_lock_file_holds_what_is_asked_for_at_a_version_that_is_allowed(name: str) -> None:
    wanted = list(BUILD) if name == "build" else requirements(name)
    locked = versions(name)
    for requirement in map(Requirement, wanted):
        package = canonicalize_name(requirement.name)
        if package in UNLOCKED.get(name, ()):
            assert package not in locked
            continue
        assert package in locked, f"{name}.txt lacks {package}: python -m scripts.lock_images"
        assert requirement.specifier.contains(locked[package], prereleases=True), (
            f"{name}.txt has {package} {locked[package]}, pyproject.toml {requirement.specifier}: python -m scripts.lock_images"
        )


@pytest.mark.parametrize("name", [*LOCKS, "build"])
def test_every_line_of_a_lock_file_has_one_version_and_hashes_and_no_address(name: str) -> None:
    found = blocks(name)
    assert found
    for requirement, block in found.items():
        assert re.fullmatch(r"==[^*]+", str(requirement.specifier)), f"{requirement} in {name}.txt"
        assert requirement.url is None
        assert "--hash=sha256:" in block, f"{requirement} in {name}.txt has no hash"
        assert "://" not in block
    assert {path.stem for path in FOLDER.glob("*.txt")} == {*LOCKS, "build"}


@pytest.mark.parametrize("name", [*(name for name in LOCKS if name != "dev"), "build"])
def test_what_is_installed_elsewhere_has_the_versions_that_the_tests_run_with(name: str) -> None:
    tested = versions("dev")
    for package, version in versions(name).items():
        assert tested.get(package, version) == version, f"{package} in {name}.txt"


@pytest.mark.parametrize("name", [name for name in LOCKS if not name.startswith(("train", "dev"))])
def test_what_serves_and_builds_holds_no_torch(name: str) -> None:
    locked = set(versions(name))
    assert not (HEAVY - {"onnx"} if name in ("builder", "serve") else HEAVY) & locked  # they make glow-base
    both = {"onnxruntime", "onnxruntime-gpu"} & locked
    assert both == {"onnxruntime-gpu" if name.endswith("gpu") else "onnxruntime"}


def test_the_lock_for_development_brings_no_cuda_and_make_pins_torch() -> None:
    assert not [name for name in versions("dev") if name.startswith(("nvidia", "cuda", "triton"))]
    assert "torch==2.13.0" in requirements("dev")
    assert "install --quiet 'torch==2.13.0'" in made(".venv/.dev")


def made(*arguments: str) -> str:
    """What make would do."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("target", "lock"), [(".venv/.serve", "serve"), (".venv/.dev", "dev")])
def test_make_installs_from_a_lock_file_and_without_one_when_told(target: str, lock: str) -> None:
    commands = re.findall(r"pip (install [^&|]*)", made(target).replace("\\\n", " "))
    assert any(f"docker/requirements/{lock}.txt" in command for command in commands)
    for command in commands:
        allowed = ("--require-hashes", "--no-deps --no-build-isolation", "torch==")
        assert any(each in command for each in allowed)
        subprocess.run(["sh", "-n"], input=made(target), text=True, check=True)
    unlocked = made(target, "LOCK=")
    assert "docker/requirements" not in unlocked
    assert "--editable '.'" in unlocked
