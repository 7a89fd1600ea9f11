"""Base images: named in one list, by a digest everywhere once a release is made, and no release without."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from scripts.pin_images import LIST, NAMED_IN, faults, images, pin, registry_digest

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
    found = {}
    for path in (path for pattern in NAMED_IN for path in root.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        inside = set(re.findall(r"(?m)^ARG \w+_IMAGE=(\S+)", text))
        inside |= set(re.findall(r"\$\{\w+_IMAGE:-([^}]+)\}", text))
        inside |= set(re.findall(r"(?m)^\s+(?:- )?image: ([^$\s]+)$", text))
        found[str(path.relative_to(root))] = {
            image for image in inside if not image.rpartition("/")[2].startswith("glow-")
        }
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
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}

    def ask(image: str) -> str:
        if image.startswith("redis"):
            raise OSError(f"{image}: the registry gave no digest")
        return FIRST

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


def test_the_command_for_the_release_says_what_is_missing() -> None:
    command = [sys.executable, "-m", "scripts.pin_images", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        (1, "".join(f"{line}\n" for line in faults(release=True))) if faults(release=True) else (0, "")
    )


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
