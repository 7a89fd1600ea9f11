"""What is pinned: base images by digests, from one list, before a release; packages by lock files that agree."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.lock_images import BUILD, LOCKS, UNLOCKED, requirements
from scripts.pin_images import LIST, NAMED_IN, faults, images, pin, registry_digest
from tests.program import python

ROOT = Path(__file__).parents[2]
FIRST, SECOND = "sha256:" + "a1" * 32, "sha256:" + "b2" * 32


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What names base images, without digests, in a folder of its own."""
    for path in (ROOT / LIST, *(path for pattern in NAMED_IN for path in ROOT.glob(pattern))):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(re.sub(r"@sha256:\w+", "", path.read_text(encoding="utf-8")), encoding="utf-8")
    return tmp_path


def named(root: Path) -> dict[str, set[str]]:
    """File -> its third-party images, as an engine or kubectl would read it."""
    patterns = (r"(?m)^ARG \w+_IMAGE=(\S+)", r"\$\{\w+_IMAGE:-([^}]+)\}", r"(?m)^\s+(?:- )?image: ([^$\s]+)$")
    found = {}
    for path in (path for pattern in NAMED_IN for path in root.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        inside = {image for pattern in patterns for image in re.findall(pattern, text)}
        ours = {image for image in inside if image.rpartition("/")[2].startswith("glow-")}
        found[str(path.relative_to(root))] = inside - ours
    return found


def test_every_base_image_stands_in_the_list_as_it_is_named_elsewhere() -> None:
    assert faults(release=False) == []
    elsewhere = named(ROOT)
    assert set().union(*elsewhere.values()) == set(images().values())
    assert elsewhere["k8s/base/redis.yaml"] == {images()["REDIS_IMAGE"]}
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    for name in ("redis", "grafana"):
        assert compose[name]["image"] == f"${{{name.upper()}_IMAGE:-{images()[f'{name.upper()}_IMAGE']}}}"


def test_digests_are_written_everywhere_and_again_when_a_tag_moves(checkout: Path) -> None:
    places = sum(map(len, named(checkout).values()))
    for digest in (FIRST, SECOND):
        pinned = pin(checkout, lambda _, digest=digest: digest).values()
        assert all(image.endswith(f"@{digest}") for image in pinned)
        written = [image for inside in named(checkout).values() for image in inside]
        assert len(written) == places
        assert all(image.endswith(f"@{digest}") and image.count("@") == 1 for image in written)
        assert faults(checkout, release=True) == []
    yaml.safe_load((checkout / "docker-compose.yml").read_text(encoding="utf-8"))


def test_a_registry_that_gives_no_digest_changes_nothing(checkout: Path) -> None:
    def ask(image: str) -> str:
        if image.startswith("redis"):
            raise OSError(f"{image}: the registry gave no digest")
        return FIRST

    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    with pytest.raises(OSError, match="redis"):
        pin(checkout, ask)
    assert {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()} == before


def test_a_release_without_digests_or_with_two_for_one_image_is_refused(checkout: Path) -> None:
    lines = faults(checkout, release=True)
    assert len(lines) == len(images())
    assert all("has no digest" in line and "python -m scripts.pin_images" in line for line in lines)
    pin(checkout, lambda _: FIRST)
    path = checkout / "docker" / "service.Dockerfile"
    path.write_text(path.read_text(encoding="utf-8").replace(FIRST, SECOND), encoding="utf-8")
    (line,) = faults(checkout, release=True)
    assert line.startswith("docker/service.Dockerfile: python:") and SECOND in line
    told = faults(release=True)  # of this checkout, by the command for the release
    done = python("-m", "scripts.pin_images", "--check")
    assert (done.returncode, done.stderr) == (int(bool(told)), "".join(f"{line}\n" for line in told))


@pytest.mark.parametrize(("prints", "status"), [("sha256:abc", 0), ("", 0), (FIRST, 1), (FIRST, 0)])
def test_what_a_registry_says_is_taken_as_a_digest_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, status: int
) -> None:
    """A stand-in for `docker`: no registry can be asked in a test."""
    docker = tmp_path / "docker"
    docker.write_text(f"#!{shutil.which('sh')}\necho '{prints}'\nexit {status}\n", encoding="utf-8")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    if (prints, status) == (FIRST, 0):
        assert registry_digest("redis:7-bookworm") == FIRST
    else:
        with pytest.raises(OSError, match="redis:7-bookworm: the registry gave no digest"):
            registry_digest("redis:7-bookworm")


# Lock files: each holds what pyproject.toml asks for, at a version that it allows, with hashes.

FOLDER = ROOT / "docker" / "requirements"
HEAVY = {"torch", "onnx", "scipy", "ir-measures", "bm25s"}
PLACE = {
    **default_environment(),
    "python_version": "3.11",
    "python_full_version": "3.11.7",
    "sys_platform": "linux",
    "platform_system": "Linux",
}
"""Where the lock files are tried; images have it, and CI."""


def blocks(name: str) -> dict[Requirement, str]:
    """Requirement -> the lines of a lock file that it stands in, hashes included."""
    text = re.sub(r"(?m)^#.*\n", "", (FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
    parts = [block for block in re.split(r"(?m)^(?=[a-zA-Z0-9])", text) if block.strip()]
    return {Requirement(re.split(r"\s*\\\n", block, maxsplit=1)[0]): block for block in parts}


def versions(name: str) -> dict[str, str]:
    """Package -> its version in a lock file."""
    lines = [line for line in blocks(name) if line.marker is None or line.marker.evaluate(PLACE)]
    found = {canonicalize_name(line.name): str(line.specifier).removeprefix("==") for line in lines}
    assert len(found) == len(lines), f"{name}.txt names a package twice"
    return found


@pytest.mark.parametrize("name", [*LOCKS, "build"])
def test_a_lock_file_holds_what_is_asked_for_with_hashes_and_the_versions_of_the_tests(name: str) -> None:
    locked, tested = versions(name), versions("dev")
    for requirement in map(Requirement, BUILD if name == "build" else requirements(name)):
        package = canonicalize_name(requirement.name)
        if package in UNLOCKED.get(name, ()):
            assert package not in locked
            continue
        again = f"{name}.txt and pyproject.toml differ in {package}: python -m scripts.lock_images"
        assert package in locked, again
        assert requirement.specifier.contains(locked[package], prereleases=True), again
    for requirement, block in blocks(name).items():
        assert re.fullmatch(r"==[^*]+", str(requirement.specifier)), f"{requirement} in {name}.txt"
        assert requirement.url is None and "://" not in block
        assert "--hash=sha256:" in block, f"{requirement} in {name}.txt has no hash"
    for package, version in locked.items():
        assert tested.get(package, version) == version, f"{package} in {name}.txt"
    assert {path.stem for path in FOLDER.glob("*.txt")} == {*LOCKS, "build"}


@pytest.mark.parametrize("name", [name for name in LOCKS if not name.startswith(("train", "dev"))])
def test_what_serves_and_builds_holds_no_torch(name: str) -> None:
    locked = set(versions(name))
    assert not (HEAVY - {"onnx"} if name in ("builder", "serve") else HEAVY) & locked  # they make glow-base
    both = {"onnxruntime", "onnxruntime-gpu"} & locked
    assert both == {"onnxruntime-gpu" if name.endswith("gpu") else "onnxruntime"}


def made(*arguments: str) -> str:
    """What make would do."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_lock_for_development_brings_no_cuda_and_make_pins_torch() -> None:
    assert not [name for name in versions("dev") if name.startswith(("nvidia", "cuda", "triton"))]
    assert "torch==2.13.0" in requirements("dev")
    assert "install --quiet 'torch==2.13.0'" in made(".venv/.dev")


@pytest.mark.parametrize(("target", "lock"), [(".venv/.serve", "serve"), (".venv/.dev", "dev")])
def test_make_installs_from_a_lock_file_and_without_one_when_told(target: str, lock: str) -> None:
    subprocess.run(["sh", "-n"], input=made(target), text=True, check=True)
    commands = re.findall(r"pip (install [^&|]*)", made(target).replace("\\\n", " "))
    assert any(f"docker/requirements/{lock}.txt" in command for command in commands)
    allowed = ("--require-hashes", "--no-deps --no-build-isolation", "torch==")
    assert all(any(each in command for each in allowed) for command in commands)
    unlocked = made(target, "LOCK=")
    assert "docker/requirements" not in unlocked
    assert "--editable '.'" in unlocked
